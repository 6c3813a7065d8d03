"""The stored frames and the code agree, both ways: what was sent yesterday is read today, byte for byte."""

from typing import Any

import msgspec
import pytest

from protocol.codec import decode_from_engine, decode_status, decode_to_engine, encode
from tests.protocol.regen_wire import WIRE_GOLDENS, readable
from tests.protocol.wire_examples import EXAMPLES, FROM_ENGINE, TO_ENGINE


def _decoded(name: str, frame: bytes) -> Any:
    if name in TO_ENGINE:
        return decode_to_engine(frame)
    return decode_from_engine(frame) if name in FROM_ENGINE else decode_status(frame)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_stored_frame_is_read_as_its_message(name: str) -> None:
    """Bytes to message."""
    assert _decoded(name, (WIRE_GOLDENS / f"{name}.msgpack").read_bytes()) == EXAMPLES[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_message_is_written_as_its_stored_frame(name: str) -> None:
    """Message to bytes."""
    assert encode(EXAMPLES[name]) == (WIRE_GOLDENS / f"{name}.msgpack").read_bytes()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_readable_copy_is_true(name: str) -> None:
    """The JSON beside a frame shows that frame."""
    assert readable(EXAMPLES[name]) == (WIRE_GOLDENS / f"{name}.json").read_text(encoding="utf-8")


def test_no_stored_frame_is_left_over() -> None:
    """Every file belongs to an example."""
    wanted = sorted(f"{name}.{ending}" for name in EXAMPLES for ending in ("json", "msgpack"))
    assert sorted(path.name for path in WIRE_GOLDENS.iterdir()) == wanted


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith("_full")])
def test_a_full_example_leaves_no_field_at_its_default(name: str) -> None:
    """A field that is added without a golden value is noticed."""
    assert _at_default(EXAMPLES[name], name) == []


def _at_default(value: Any, where: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, tuple):
        for item in value:
            found += _at_default(item, where)
    if isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            member = getattr(value, field.name)
            if not field.required and member == field.default:
                found.append(f"{where}.{field.name}")
            found += _at_default(member, f"{where}.{field.name}")
    return found
