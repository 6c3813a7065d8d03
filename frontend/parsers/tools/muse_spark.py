"""Muse's calls: ATEM's `<atem:invoke name="…">` with an `<atem:parameter name="…">` for each argument."""

from typing import Final

from frontend.parsers.tagged_calls import CallTags, tagged_format

_TAGS: Final = CallTags(
    call="<atem:invoke name=",
    call_end="</atem:invoke>",
    argument="<atem:parameter name=",
    argument_end="</atem:parameter>",
    trim="nothing",
)
MUSE_SPARK: Final = tagged_format("muse_spark", "<atem:function_calls>", "</atem:function_calls>", _TAGS)
