"""The keys that requests must show, when there are any: kept as digests, compared in constant time.

Owns no rule about which request needs one.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping


class ApiKeys:
    """A set of keys; an empty one lets everybody in. Nothing in it shows a key."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = tuple(_digest(key) for key in keys)

    @property
    def are_required(self) -> bool:
        """Whether a request needs a key at all."""
        return bool(self._digests)

    def accept(self, key: str) -> bool:
        """Whether this is one of the keys; takes as long for a near miss as for a wild guess."""
        digest = _digest(key)
        matches = 0
        # Every key is compared, also behind a match: the time tells nothing of which it was.
        for known in self._digests:
            matches += hmac.compare_digest(digest, known)
        return matches > 0


def shown_keys(headers: Mapping[str, str]) -> list[str]:
    """The keys that a request shows: OpenAI's clients in `authorization`, Anthropic's in `x-api-key`."""
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    keys = [credential.strip()] if scheme.lower() == "bearer" else []
    return [key for key in [*keys, headers.get("x-api-key", "").strip()] if key]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
