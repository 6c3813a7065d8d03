"""The key of a tokenizer's files: computed by the engine, checked by a client on what it fetched or kept."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple


class NamedFile(NamedTuple):
    """One tokenizer file. name: without folders, as in the manifest."""

    name: str
    content: bytes


def tokenizer_sha256(files: Iterable[NamedFile]) -> str:
    """sha256, in hex, over the files in the manifest's order.

    Of each: the name in UTF-8, a zero byte, the content's length as u64 little-endian, the content.
    """
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + len(file.content).to_bytes(8, "little"))
        digest.update(file.content)
    return digest.hexdigest()
