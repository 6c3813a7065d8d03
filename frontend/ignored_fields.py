"""Request fields that are named back as ignored: in a response header each time, in the log once each."""

import logging
from collections.abc import Sequence
from typing import Final

from frontend.parts import FrontendParts

log = logging.getLogger(__name__)

_MAX_NAMED_FIELDS: Final = 1_000


def ignored_header(names: Sequence[str], parts: FrontendParts) -> dict[str, str]:
    """The header that names them; none without names."""
    if not names:
        return {}
    for name in names:
        if name not in parts.named_ignored_fields and len(parts.named_ignored_fields) < _MAX_NAMED_FIELDS:
            parts.named_ignored_fields.add(name)
            log.warning("request.field_ignored", extra={"field": name})
    shown = (name.encode("ascii", "backslashreplace").decode() for name in names)
    plain = ("".join(letter if letter.isprintable() and letter != "," else "?" for letter in name) for name in shown)
    return {"x-convoy-ignored": ", ".join(plain)[:1_000]}
