"""Every message survives the wire with every field, and peers of other ages are understood by the rules of change."""

import typing
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given, settings

from protocol import messages, sampling, status
from protocol.codec import decode_from_engine, decode_status, decode_to_engine, encode
from protocol.errors import ProtocolError
from protocol.messages import AnyFromEngine, AnyToEngine
from protocol.status import EngineStatus
from tests.protocol.strategies import structs_of, wire_values
from tests.protocol.wire_examples import EXAMPLES, FROM_ENGINE, TO_ENGINE


@settings(max_examples=200, deadline=None)
@given(wire_values(AnyToEngine))
def test_what_a_client_sends_survives(message: Any) -> None:
    """decode(encode(m)) == m for every message to the engine and any values of its fields."""
    assert decode_to_engine(encode(message)) == message


@settings(max_examples=200, deadline=None)
@given(wire_values(AnyFromEngine))
def test_what_the_engine_sends_survives(message: Any) -> None:
    """decode(encode(m)) == m for every message from the engine."""
    assert decode_from_engine(encode(message)) == message


@settings(max_examples=100, deadline=None)
@given(wire_values(EngineStatus))
def test_a_status_survives(message: EngineStatus) -> None:
    """decode(encode(m)) == m for the status frame."""
    assert decode_status(encode(message)) == message


def _decode(name: str, content: dict[str, Any]) -> Any:
    frame = msgpack.packb(content)
    if name in TO_ENGINE:
        return decode_to_engine(frame)
    return decode_from_engine(frame) if name in FROM_ENGINE else decode_status(frame)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_newer_peers_unknown_fields_are_ignored(name: str) -> None:
    """A field that this version does not know, at any level, changes nothing."""
    content = _with_news(msgspec.to_builtins(EXAMPLES[name], builtin_types=(bytes,)))
    assert content["news"] == {"since": 2}
    assert _decode(name, content) == EXAMPLES[name]


def _with_news(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_with_news(item) for item in value]
    if isinstance(value, dict):
        return {"news": {"since": 2}, **{key: _with_news(item) for key, item in value.items()}}
    return value


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.endswith("_least")])
def test_an_older_peers_missing_fields_take_their_defaults(name: str) -> None:
    """A frame that holds only the required fields is whole."""
    content = _required_only(EXAMPLES[name])
    assert _decode(name, content) == EXAMPLES[name]


def _required_only(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_required_only(item) for item in value]
    if not isinstance(value, msgspec.Struct):
        return value
    content = {} if value.__struct_config__.tag is None else {"type": value.__struct_config__.tag}
    for field in msgspec.structs.fields(value):
        member = getattr(value, field.name)
        if field.required or member != field.default:
            content[field.name] = _required_only(member)
    return content


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_missing_required_field_is_an_error(name: str) -> None:
    """No required field is guessed."""
    whole = msgspec.to_builtins(EXAMPLES[name], builtin_types=(bytes,))
    required = [field.name for field in msgspec.structs.fields(EXAMPLES[name]) if field.required]
    for field in required:
        with pytest.raises(ProtocolError, match=f"missing required field `{field}`"):
            _decode(name, {key: value for key, value in whole.items() if key != field})


def test_every_struct_obeys_the_rules() -> None:
    """Wire structs are frozen, keyword-only maps with plain field names."""
    for module in (messages, sampling, status):
        for struct in structs_of(module).values():
            config = struct.__struct_config__
            assert (config.frozen, config.array_like, config.omit_defaults) == (True, False, False), struct
            assert struct.__struct_fields__ == struct.__struct_encode_fields__, struct


def test_an_optional_field_says_what_silence_means() -> None:
    """Every optional field has a default that an older peer's silence means."""
    for module in (messages, sampling, status):
        for struct in structs_of(module).values():
            for field in msgspec.structs.fields(struct):
                assert field.required or field.default is not msgspec.NODEFAULT, f"{struct.__name__}.{field.name}"


def test_tags_are_unique_over_the_whole_wire() -> None:
    """A frame's tag names one message whichever socket it came by."""
    unions = [*typing.get_args(AnyToEngine), *typing.get_args(AnyFromEngine), EngineStatus]
    tags = [member.__struct_config__.tag for member in unions]
    assert len(set(tags)) == len(tags) == 14


def test_the_directions_do_not_mix() -> None:
    """An engine's message is no client's message, and the reverse."""
    for message in FROM_ENGINE.values():
        with pytest.raises(ProtocolError, match="Invalid value"):
            decode_to_engine(encode(message))
    for message in TO_ENGINE.values():
        with pytest.raises(ProtocolError, match="Invalid value"):
            decode_from_engine(encode(message))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ""),
        ("id", "a" * 257),
        ("group", ""),
        ("model", "a" * 257),
        ("epoch", ""),
        ("epoch", "e" * 65),
        ("attempt", -1),
        ("choice", -1),
        ("choice", 2**53 + 1),
        ("max_tokens", 0),
        ("max_tokens", 5.0),
        ("max_tokens", True),
        ("max_tokens", "5"),
        ("seed", -1),
        ("seed", 2**63),
        ("stop_ids", [2**32]),
        ("stop_ids", [1] * 1_025),
        ("ignore_eos", 1),
        ("min_tokens", -1),
        ("deadline_ms", 0),
        ("snapshot_at", [-1]),
        ("sampling", None),
        ("sampling", {"temperature": -0.5}),
        ("sampling", {"temperature": float("nan")}),
        ("sampling", {"top_p": 1.5}),
        ("sampling", {"xtc_threshold": 0.75}),
        ("sampling", {"repetition_penalty": 0.0}),
        ("sampling", {"bad_words": [[]]}),
        ("sampling", {"bad_words": [[1] * 65]}),
        ("sampling", {"bad_words": [[1]] * 1_025}),
        ("sampling", {"allowed_ids": [2**32]}),
        ("sampling", {"allowed_ids": [1] * 65_537}),
        ("logprobs", {"top": 21}),
        ("grammar", {"kind": "xml", "text": ""}),
        ("prompt", {"type": "text", "ids": b""}),
        ("prompt", {"type": "tokens", "ids": "AAAA"}),
        ("generated", "AAAA"),
    ],
)
def test_a_submit_out_of_its_bounds_is_an_error_that_names_the_field(field: str, value: Any) -> None:
    """Bounds are checked once, at the boundary; a string never stands for bytes."""
    content = msgspec.to_builtins(EXAMPLES["submit_least"], builtin_types=(bytes,)) | {field: value}
    with pytest.raises(ProtocolError, match=rf"`\$\.{field}"):
        _decode("submit_least", content)


def test_messages_are_values() -> None:
    """A message cannot be changed after it is made."""
    with pytest.raises(AttributeError):
        TO_ENGINE["ping_least"].epoch = "other"  # type: ignore[misc]  # what is tested
