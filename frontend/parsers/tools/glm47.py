"""GLM 4.7's and Laguna's calls: as GLM 4.5's, in one line."""

from typing import Final

from frontend.parsers.keyed_calls import keyed_format
from frontend.parsers.tools.glm45 import GLM_TAGS, has_lines


def _claims(template: str) -> bool:
    return GLM_TAGS.key in template and not has_lines(template)


GLM47: Final = keyed_format("glm47", "<tool_call>", GLM_TAGS, _claims, line="")
