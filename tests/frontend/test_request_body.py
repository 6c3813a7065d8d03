"""JSON bodies: depth before decoding, and what is told of a bad one."""

import contextlib
import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend import request_body
from frontend.errors import HttpErrorCode, RequestError
from frontend.request_body import MAX_JSON_CONTAINERS, MAX_JSON_DEPTH, decoded, json_shape


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def depth_of(value: object) -> int:
    """The same by walking the value."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def test_128_levels_are_taken_and_one_more_is_not() -> None:
    """The limit is told in the message; it is one of size, as that of bytes."""
    assert depth_of(decoded(nested(MAX_JSON_DEPTH))) == MAX_JSON_DEPTH
    with pytest.raises(RequestError, match="nested deeper than the 128 levels") as caught:
        decoded(nested(MAX_JSON_DEPTH + 1))
    assert (caught.value.status, caught.value.code) == (413, HttpErrorCode.BODY_TOO_LARGE)


def test_too_deep_bodies_are_never_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth is judged before any work is done."""
    monkeypatch.setattr(msgspec.json, "decode", pytest.fail)
    for body in (b"[" * 200, nested(100_000), b'{"a":' * 200):
        with pytest.raises(RequestError, match="nested deeper"):
            decoded(body)


def test_brackets_in_text_do_not_count() -> None:
    """Also behind escaped quotes and backslashes, in keys, and many of them."""
    value = {"[" * 300: '\\"' + "{" * 300, "b": ["\\", "]" * 300, {"c": "}"}]}
    assert decoded(json.dumps(value).encode()) == value


JSON = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\a', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[]{}"\\', max_size=3), inner),
    max_leaves=30,
)


@given(JSON)
def test_depth_is_the_walked_depth(value: object) -> None:
    """Whatever stands in its texts; many brackets beside the value make the count an exact one."""
    wide = [value, ["[]"] * MAX_JSON_DEPTH, *([[]] * MAX_JSON_DEPTH)]
    assert json_shape(json.dumps(wide).encode()).depth == max(depth_of(wide), 2)


@given(st.binary(max_size=400) | st.text(alphabet='[]{}",:\\1', max_size=400).map(str.encode))
def test_anything_is_a_value_or_a_400(body: bytes) -> None:
    """No bytes raise anything else than a RequestError."""
    with contextlib.suppress(RequestError):
        decoded(body)


def test_depth_of_a_large_body_is_quick() -> None:
    """The worst body at the default limit takes seconds at most, beside the event loop."""
    body = b"[" + b"[]," * (5 * 1024 * 1024) + b"[]]"
    began_s = time.process_time()
    assert json_shape(body).depth == 2
    assert time.process_time() - began_s < 10


def containers_of(value: object) -> int:
    """Arrays and objects, by walking the value."""
    if isinstance(value, dict):
        return 1 + sum(map(containers_of, value.values()))
    return 1 + sum(map(containers_of, value)) if isinstance(value, list) else 0


@given(JSON, st.integers(1, 30))
def test_the_shape_is_the_same_in_pieces(value: object, piece: int) -> None:
    """Also where a piece would end within an escape, or within a text."""
    body = [value, *([[]] * 200)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_body, "_PIECE_BYTES", piece)
        assert json_shape(json.dumps(body).encode()) == (depth_of(body), containers_of(body))


def test_too_many_parts_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has both numbers; brackets in texts are none."""
    texts = json.dumps(["[" * MAX_JSON_CONTAINERS, *([{}] * (MAX_JSON_CONTAINERS - 1))]).encode()
    assert json_shape(texts).containers == MAX_JSON_CONTAINERS
    assert len(decoded(texts)) == MAX_JSON_CONTAINERS
    monkeypatch.setattr(msgspec.json, "decode", pytest.fail)
    with pytest.raises(RequestError, match="has 200001 arrays and objects, at most 200000") as caught:
        decoded(b"[" + b"{}," * (MAX_JSON_CONTAINERS - 1) + b"[]]")
    assert (caught.value.status, caught.value.code) == (413, HttpErrorCode.BODY_TOO_LARGE)
