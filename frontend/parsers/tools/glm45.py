"""GLM 4.5's and 4.6's calls: a name, then `<arg_key>` and `<arg_value>` for each argument, a line each."""

from typing import Final

from frontend.parsers.keyed_calls import KeyTags, keyed_format

GLM_TAGS: Final = KeyTags(
    key="<arg_key>", key_end="</arg_key>", value="<arg_value>", value_end="</arg_value>", end="</tool_call>"
)


def has_lines(template: str) -> bool:
    """Whether arguments stand on lines of their own; in GLM 4.7's calls, the same otherwise, they do not."""
    return f"\n{GLM_TAGS.key}" in template or f"\\n{GLM_TAGS.key}" in template


GLM45: Final = keyed_format("glm45", "<tool_call>", GLM_TAGS, has_lines)
