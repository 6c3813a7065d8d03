"""Signatures of thinking blocks. Ours prove nothing: they carry reasoning that a client wants back but not to show.

With `display: omitted` the text travels in the signature, so that the next turn's prompt can have it.
"""

import base64
from typing import Final

_SHOWN: Final = "convoy"
_HIDDEN: Final = "convoy:"


def signature_of(hidden: str = "") -> str:
    """A signature, with the text that the block itself does not show."""
    return _HIDDEN + base64.b64encode(hidden.encode()).decode() if hidden else _SHOWN


def signed_reasoning(signature: str) -> str:
    """The text in a signature; empty for those of others, which nobody here can read."""
    if not signature.startswith(_HIDDEN):
        return ""
    try:
        return base64.b64decode(signature.removeprefix(_HIDDEN), validate=True).decode()
    except ValueError:  # not base64, or not text
        return ""
