"""The frontends' shared copies of tokenizer files in the runtime folder, one folder per hash.

Owns their fetching, checking and atomic appearance; knows nothing of what the files say.
"""

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import TokenizerChunk, TokenizerManifest
from protocol.tokenizer_hash import NamedFile, tokenizer_sha256

log = logging.getLogger(__name__)

MAX_TOKENIZER_BYTES: Final = 256 * 1024 * 1024
_FETCH_LIMIT_S: Final = 10.0

FetchChunk = Callable[[str, int], Awaitable[TokenizerChunk]]


async def ensure_tokenizer_copy(parent: Path, manifest: TokenizerManifest, fetch: FetchChunk) -> Path:
    """The folder with the manifest's files, fetched unless a true copy is there.

    fetch(name, offset_bytes) gets one chunk from the engine.
    Raises ProtocolError(MALFORMED_FRAME) when what the engine sends is not what it announced, TimeoutError
    when it does not answer.
    """
    _check_manifest(manifest)
    folder = parent / manifest.sha256
    if await asyncio.to_thread(is_true_copy, folder, manifest):
        return folder
    files = [NamedFile(file.name, await _fetch_file(file.name, file.length_bytes, fetch)) for file in manifest.files]
    await asyncio.to_thread(_publish, folder, files, manifest)
    log.debug("tokenizer.fetched", extra={"sha256": manifest.sha256, "files": len(files)})
    return folder


def is_true_copy(folder: Path, manifest: TokenizerManifest) -> bool:
    """Whether the folder holds every file of the manifest, byte for byte."""
    try:
        files = [NamedFile(file.name, (folder / file.name).read_bytes()) for file in manifest.files]
    except FileNotFoundError:
        return False
    return tokenizer_sha256(files) == manifest.sha256


def _check_manifest(manifest: TokenizerManifest) -> None:
    names = [file.name for file in manifest.files]
    if any(name != os.path.basename(name) or name in ("", ".", "..") for name in [*names, manifest.sha256]):
        raise _broken(f"file names {names} are not plain")
    total_bytes = sum(file.length_bytes for file in manifest.files)
    if total_bytes > MAX_TOKENIZER_BYTES:
        raise _broken(f"{total_bytes} bytes are over the limit of {MAX_TOKENIZER_BYTES}")


async def _fetch_file(name: str, length_bytes: int, fetch: FetchChunk) -> bytes:
    content = bytearray()
    while True:
        async with asyncio.timeout(_FETCH_LIMIT_S):
            chunk = await fetch(name, len(content))
        content += chunk.data
        if len(content) > length_bytes or (chunk.is_last and len(content) < length_bytes):
            raise _broken(f"{name} has {len(content)} bytes, not the {length_bytes} announced")
        if chunk.is_last:
            return bytes(content)
        if not chunk.data:
            raise _broken(f"{name} stops at {len(content)} of {length_bytes} bytes")


def _publish(folder: Path, files: list[NamedFile], manifest: TokenizerManifest) -> None:
    if tokenizer_sha256(files) != manifest.sha256:
        raise _broken(f"the files' hash is not {manifest.sha256}")
    draft = folder.with_name(f"draft-{os.getpid()}-{secrets.token_hex(4)}")
    draft.mkdir(mode=0o700, parents=True)
    try:
        for file in files:
            (draft / file.name).write_bytes(file.content)
        _swap_in(draft, folder, manifest)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _swap_in(draft: Path, folder: Path, manifest: TokenizerManifest) -> None:
    if folder.exists() and not is_true_copy(folder, manifest):
        # Moved, then removed: another frontend must never meet a half-removed folder under the hash.
        corrupt = draft.with_name(f"{draft.name}-corrupt")
        log.warning("tokenizer.copy_corrupt", extra={"folder": str(folder)})
        folder.rename(corrupt)
        shutil.rmtree(corrupt)
    try:
        draft.rename(folder)
    except OSError:
        # Another frontend was faster; its copy serves as well, if it is one.
        if not is_true_copy(folder, manifest):
            raise


def _broken(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.MALFORMED_FRAME, f"tokenizer from the engine: {why}")
