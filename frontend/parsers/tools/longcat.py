"""LongCat's calls: a name, then a pair of tags for each argument, or JSON; all between tags of its own."""

from typing import Final

from frontend.parsers.keyed_calls import KeyTags, keyed_format

_BEGIN: Final = "<longcat_tool_call>"
_TAGS: Final = KeyTags(
    key="<longcat_arg_key>",
    key_end="</longcat_arg_key>",
    value="<longcat_arg_value>",
    value_end="</longcat_arg_value>",
    end="</longcat_tool_call>",
)
LONGCAT: Final = keyed_format("longcat", _BEGIN, _TAGS, lambda template: _BEGIN in template)
