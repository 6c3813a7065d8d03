"""GLM 4.7's and Laguna's calls: as GLM 4.5's, in one line."""

from dataclasses import replace
from typing import Final

from frontend.parsers.tools.glm45 import GLM45, GLM_TAGS, has_lines


def _claims(template: str) -> bool:
    return GLM_TAGS.key in template and not has_lines(template)


GLM47: Final = replace(GLM45, name="glm47", claims=_claims)
