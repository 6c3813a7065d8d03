"""Frames obey their limits, and no bytes from outside raise anything but ProtocolError."""

import contextlib
import math
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol.codec import (
    MAX_FRAME_BYTES,
    MAX_ITEMS,
    decode_from_engine,
    decode_status,
    decode_to_engine,
    encode,
    pack_ids,
    submit_id_of,
    unpack_ids,
)
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import ControlDone, Ping, Rejected, Submit, TokenPrompt

PING = {"type": "ping", "epoch": "e1"}
TokenIds = st.lists(st.integers(0, 2**32 - 1), max_size=50)


def _submit(**fields: Any) -> Submit:
    whole = {"epoch": "e1", "id": "a", "group": "g", "model": "m", "prompt": TokenPrompt(ids=b"")}
    return Submit(**(whole | fields))  # type: ignore[arg-type]  # test data


@settings(deadline=None)
@given(TokenIds)
def test_token_ids_survive_packing(ids: list[int]) -> None:
    """unpack(pack(ids)) == ids over the whole u32 range."""
    assert unpack_ids(pack_ids(ids)) == ids


def test_token_ids_are_little_endian_u32() -> None:
    """The byte order is the wire's, whatever this machine's is."""
    assert pack_ids([1, 2**32 - 2]) == b"\x01\x00\x00\x00\xfe\xff\xff\xff"


@settings(deadline=None)
@given(TokenIds)
def test_token_ids_are_the_same_on_a_big_endian_machine(ids: list[int]) -> None:
    """The swap of the other byte order undoes itself; here it is applied on the wrong one to see it work."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(codec.sys, "byteorder", "big" if codec.sys.byteorder == "little" else "little")
        swapped = pack_ids(ids)
        assert unpack_ids(swapped) == ids
    assert unpack_ids(swapped) == [int.from_bytes(id_.to_bytes(4, "little"), "big") for id_ in ids]


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_torn_id_is_an_error(length: int) -> None:
    """Bytes that are no whole number of ids are refused with their count."""
    with pytest.raises(ProtocolError, match=f"token ids of {length} bytes: not a multiple of 4"):
        unpack_ids(bytes(length))


def test_a_frame_over_the_limit_is_not_sent() -> None:
    """The sender learns it at once; a receiver would drop the connection."""
    room = MAX_FRAME_BYTES - len(encode(_submit(generated=bytes(2**16))))
    largest = encode(_submit(generated=bytes(2**16 + room)))
    assert len(largest) == MAX_FRAME_BYTES
    assert decode_to_engine(largest) == _submit(generated=bytes(2**16 + room))
    with pytest.raises(ProtocolError, match=f"frame of {MAX_FRAME_BYTES + 1} bytes is over the limit"):
        encode(_submit(generated=bytes(2**16 + room + 1)))


def test_a_frame_over_the_limit_is_not_read() -> None:
    """The limit comes before any unpacking."""
    with pytest.raises(ProtocolError, match="over the limit of 8388608"):
        decode_to_engine(bytes(MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "message",
    [_submit(priority=2**64), _submit(priority=-(2**63) - 1), _submit(model="\ud800")],
    ids=["int over u64", "int under i64", "lone surrogate"],
)
def test_what_messagepack_cannot_hold_is_a_protocol_error(message: Submit) -> None:
    """A client's odd JSON becomes a refusal, not a crash of its frontend."""
    with pytest.raises(ProtocolError, match="cannot be packed"):
        encode(message)


def test_infinite_and_missing_numbers_travel() -> None:
    """A log-probability of minus infinity is a value."""
    frame = encode(Rejected(epoch="e1", code=ErrorCode.INTERNAL, message="", retry_after_s=-math.inf))
    assert decode_from_engine(frame) == Rejected(
        epoch="e1", code=ErrorCode.INTERNAL, message="", retry_after_s=-math.inf
    )


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "incomplete input"),
        (b"\xc1", "not a MessagePack frame"),
        (b"\x82\xa4type\xa4ping", "incomplete input"),
        (msgpack.packb(PING) + b"\x80", "extra data"),
        (msgpack.packb(None), "got `null`"),
        (msgpack.packb([PING]), "got `array`"),
        (msgpack.packb("ping"), "got `str`"),
        (msgpack.packb({}), "missing required field `type`"),
        (msgpack.packb({b"type": "ping", b"epoch": "e1"}), "missing required field `type`"),
        (msgpack.packb({"type": "shutdown", "epoch": "e1"}), "Invalid value 'shutdown'"),
        (msgpack.packb({"type": 1, "epoch": "e1"}), "`str`"),
        (msgpack.packb(PING | {"epoch": b"e1"}), "Expected `str`, got `bytes`"),
        (b"\x81\x01\x02", "int is not allowed for map key"),
        (b"\x81\x90\x01", "list is not allowed for map key"),
        (b"\x81\xa1\xff\x01", "'utf-8' codec"),
        (msgpack.packb({"news": msgpack.ExtType(5, b"x")}), "exceeds max_ext_len"),
        (msgpack.packb({"news": msgpack.Timestamp(0)}), "exceeds max_ext_len"),
        (b"\xdd" + (MAX_ITEMS + 1).to_bytes(4, "big"), "exceeds max_array_len"),
        (b"\xdf" + (MAX_ITEMS + 1).to_bytes(4, "big"), "exceeds max_map_len"),
        (b"\xc6\xff\xff\xff\xff", "incomplete input"),
        (b"\xdb\xff\xff\xff\xff", "incomplete input"),
    ],
)
@pytest.mark.parametrize("decode", [decode_to_engine, decode_from_engine, decode_status])
def test_a_broken_frame_is_a_protocol_error(decode: Any, frame: bytes, complaint: str) -> None:
    """Whatever a peer sends, the reader hears MALFORMED_FRAME and why."""
    with pytest.raises(ProtocolError) as refused:
        decode(frame)
    assert refused.value.code == ErrorCode.MALFORMED_FRAME
    if decode is decode_to_engine:
        assert complaint in refused.value.message


@pytest.mark.parametrize("nest", [b"\x91", b"\x81\xa1a", b"\x82\xa4type\xa4ping\xa1a"])
@pytest.mark.parametrize("depth", [600, 5_000, 1_000_000])
def test_a_deep_frame_is_an_error_and_no_crash(nest: bytes, depth: int) -> None:
    """Nesting cannot exhaust the reader's stack."""
    with pytest.raises(ProtocolError):
        decode_to_engine(nest * depth + b"\xc0")


def test_the_last_of_two_equal_keys_holds() -> None:
    """A repeated key is not an error: every reader takes the last."""
    frame = b"\x83" + b"".join(map(msgpack.packb, ["type", "ping", "epoch", "first", "epoch", "second"]))
    assert decode_to_engine(frame) == Ping(epoch="second")


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_are_an_error(frame: bytes) -> None:
    """No bytes raise anything else."""
    for decode in (decode_to_engine, decode_from_engine, decode_status):
        with pytest.raises(ProtocolError):
            decode(frame)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_frame_is_read_or_is_an_error(data: st.DataObject) -> None:
    """One flipped byte gives another message or a ProtocolError."""
    frame = bytearray(encode(_submit(stop_ids=(1, 2), generated=b"abcd")))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode_to_engine(bytes(frame)), Submit)


@pytest.mark.parametrize(
    "frame",
    [{"type": "x" * 8_388_500}, PING | {"attempt": "x" * 8_388_500}, {"type": "ping", "epoch": "x" * 8_388_500}],
)
def test_the_complaint_about_a_large_frame_is_small(frame: dict[str, str]) -> None:
    """An answer that quoted the frame would itself be oversize, and drop an innocent connection."""
    with pytest.raises(ProtocolError) as refused:
        decode_to_engine(msgpack.packb(frame))
    assert len(refused.value.message) <= 500


@pytest.mark.parametrize(
    ("content", "id_"),
    [
        ({"id": "a", "type": "submit"}, "a"),
        ({"id": "a" * 256, "type": 7}, "a" * 256),
        ({"id": "a" * 257}, None),
        ({"id": ""}, None),
        ({"id": 5}, None),
        ({"type": "submit"}, None),
        ([1], None),
    ],
)
def test_the_id_of_a_bad_submit_is_found(content: Any, id_: str | None) -> None:
    """Its sender is answered by id where the id itself is sound."""
    assert submit_id_of(msgpack.packb(content)) == id_


def test_the_id_of_no_frame_is_absent() -> None:
    """Bytes that are no frame have no id."""
    assert submit_id_of(b"\xc1") is None


def test_control_done_tells_success_by_absence() -> None:
    """An absent error and an empty one differ."""
    done, failed = ControlDone(epoch="e1", id="c"), ControlDone(epoch="e1", id="c", error="")
    assert [decode_from_engine(encode(message)) for message in (done, failed)] == [done, failed]
