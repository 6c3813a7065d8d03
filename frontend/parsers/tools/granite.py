"""Granite 3's and Phi 4's calls: a tag and a list of JSON objects."""

from typing import Final

from frontend.parsers.json_lists import list_format

GRANITE: Final = list_format("granite", "<|tool_call|>", "<|/tool_call|>", has_end=False)
