"""Hunyuan's, Jamba's and MiniMax M1's calls: JSON objects between two tags."""

from typing import Final

from frontend.parsers.json_lists import list_format

HUNYUAN_A13B: Final = list_format("hunyuan_a13b", "<tool_calls>", "</tool_calls>")
