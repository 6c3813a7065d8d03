"""Solar Open 2's calls: a name, then a special token before, within and behind each argument."""

from typing import Final

from frontend.parsers.keyed_calls import KeyTags, keyed_format

_BEGIN: Final = "<|tool_call:start|>"
_TAGS: Final = KeyTags(
    key="<|tool_arg:start|>",
    key_end="<|tool_arg:value|>",
    value=None,
    value_end="<|tool_arg:end|>",
    end="<|tool_call:end|>",
)
SOLAR: Final = keyed_format("solar", _BEGIN, _TAGS, lambda template: _BEGIN in template)
