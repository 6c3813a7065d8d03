"""MiniMax M2's calls: `<invoke name="…">` with a `<parameter name="…">` for each argument."""

from typing import Final

from frontend.parsers.tagged_calls import CallTags, tagged_format

_TAGS: Final = CallTags(
    call="<invoke name=",
    call_end="</invoke>",
    argument="<parameter name=",
    argument_end="</parameter>",
    trim="nothing",
)
MINIMAX_M2: Final = tagged_format("minimax_m2", "<minimax:tool_call>", "</minimax:tool_call>", _TAGS)
