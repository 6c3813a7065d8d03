"""Seed-OSS's calls: `<function=…>` with a `<parameter=…>` for each argument, values as they are."""

from typing import Final

from frontend.parsers.tagged_calls import CallTags, tagged_format

_TAGS: Final = CallTags(
    call="<function=",
    call_end="</function>",
    argument="<parameter=",
    argument_end="</parameter>",
    trim="nothing",
)
SEED_OSS: Final = tagged_format("seed_oss", "<seed:tool_call>", "</seed:tool_call>", _TAGS)
