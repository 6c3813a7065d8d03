"""Nemotron's calls: a list of JSON objects between two tags; Nemotron 3's are Qwen 3 Coder's."""

from typing import Final

from frontend.parsers.json_lists import list_format

NEMOTRON: Final = list_format("nemotron", "<TOOLCALL>", "</TOOLCALL>")
