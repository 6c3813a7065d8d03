"""Frames: one MessagePack map each, by msgpack under size limits, typed by msgspec. Nothing else knows bytes."""

import array
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgpack  # pyright: ignore[reportMissingTypeStubs]  # it ships none
import msgspec

from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import AnyFromEngine, AnyToEngine
from protocol.status import EngineStatus

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
MAX_CHUNK_BYTES: Final = 1024 * 1024
MAX_ITEMS: Final = 100_000
# With twenty alternatives an entry takes about 300 bytes.
MAX_PROMPT_LOGPROBS: Final = 2_048
# A complaint quotes what it complains of: unbounded, the answer to a large bad frame would itself be oversize.
_MAX_COMPLAINT_CHARACTERS: Final = 500

# msgpack is untyped: narrowed here, once.
_packb: Callable[..., bytes] = msgpack.packb  # pyright: ignore
_unpackb: Callable[..., Any] = msgpack.unpackb  # pyright: ignore


class _OnlyId(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


def encode(message: AnyToEngine | AnyFromEngine | EngineStatus) -> bytes:
    """One frame. Raises ProtocolError when it would be over MAX_FRAME_BYTES: a receiver drops such a peer.

    Also for what MessagePack cannot hold: an int beyond 64 bits, a lone surrogate.
    """
    try:
        frame = _packb(msgspec.to_builtins(message, builtin_types=(bytes,)), use_bin_type=True)
    except (OverflowError, ValueError) as error:
        raise _malformed(f"cannot be packed: {error}") from error
    if len(frame) > MAX_FRAME_BYTES:
        raise _malformed(f"frame of {len(frame)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return frame


def decode_to_engine(frame: bytes) -> AnyToEngine:
    """A client's message. Raises ProtocolError(MALFORMED_FRAME)."""
    return _typed(_unpack(frame), AnyToEngine)


def decode_from_engine(frame: bytes) -> AnyFromEngine:
    """The engine's message. Raises ProtocolError(MALFORMED_FRAME)."""
    return _typed(_unpack(frame), AnyFromEngine)


def decode_status(frame: bytes) -> EngineStatus:
    """A frame of the `status` socket. Raises ProtocolError(MALFORMED_FRAME)."""
    return _typed(_unpack(frame), EngineStatus)


def submit_id_of(frame: bytes) -> str | None:
    """The id of a frame that did not convert, so that its sender can be answered; None when it has none."""
    try:
        return msgspec.convert(_unpack(frame), type=_OnlyId).id
    except (ProtocolError, msgspec.ValidationError):
        return None


def pack_ids(ids: list[int]) -> bytes:
    """Token ids as u32 little-endian."""
    packed = array.array("I", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes) -> list[int]:
    """The inverse of pack_ids. Raises ProtocolError when the length is not a multiple of 4."""
    if len(data) % 4:
        raise _malformed(f"token ids of {len(data)} bytes: not a multiple of 4")
    packed = array.array("I", data)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tolist()


def _unpack(frame: bytes) -> Any:
    if len(frame) > MAX_FRAME_BYTES:
        raise _malformed(f"frame of {len(frame)} bytes is over the limit of {MAX_FRAME_BYTES}")
    try:
        return _unpackb(
            frame,
            raw=False,
            strict_map_key=True,
            max_str_len=MAX_FRAME_BYTES,
            max_bin_len=MAX_FRAME_BYTES,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _malformed(f"not a MessagePack frame: {error}") from error


def _typed(content: Any, type_: Any) -> Any:
    try:
        # Without bytes among the builtin types a string would be taken for base64.
        return msgspec.convert(content, type=type_, builtin_types=(bytes,))
    except (msgspec.ValidationError, RecursionError) as error:
        raise _malformed(str(error)) from error


def _malformed(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.MALFORMED_FRAME, why[:_MAX_COMPLAINT_CHARACTERS])
