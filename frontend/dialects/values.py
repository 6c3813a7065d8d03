"""Strict readers of decoded JSON: a wrong type is refused with the field, what was given and what is expected.

Nothing is coerced: "1" is not 1, and true is not 1. Null counts as absent.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from frontend.errors import RequestError
from protocol.errors import ErrorCode

_SHOWN_LENGTH: Final = 80


@dataclass(frozen=True, slots=True)
class Bounds:
    """Inclusive; None for no bound. off: one value outside of them that is taken too, and means off."""

    least: float | None = None
    most: float | None = None
    off: float | None = None


@dataclass(frozen=True, slots=True)
class Above:
    """Exclusive below, inclusive above."""

    least: float
    most: float


def shown(value: object) -> str:
    """A value as JSON, short enough for a message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"


def wrong(name: str, value: object, expected: str) -> RequestError:
    """The error for a value of the wrong type or range; null is none at all."""
    if value is None:
        return RequestError(
            ErrorCode.INVALID_REQUEST, f"`{name}` is missing or null: it must be {expected}", param=name
        )
    return RequestError(ErrorCode.INVALID_REQUEST, f"`{name}` must be {expected}, not {shown(value)}", param=name)


def is_same_json(left: object, right: object) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def as_body(value: object) -> dict[str, object]:
    """A request's body. Raises RequestError."""
    if not isinstance(value, dict):
        message = f"the request body must be a JSON object, not {shown(value)}"
        raise RequestError(ErrorCode.INVALID_REQUEST, message)
    return cast(dict[str, object], value)


def as_object(value: object, name: str) -> dict[str, object]:
    """A JSON object. Raises RequestError."""
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return cast(dict[str, object], value)


def as_list(value: object, name: str, expected: str = "an array") -> list[object]:
    """A JSON array. Raises RequestError."""
    if not isinstance(value, list):
        raise wrong(name, value, expected)
    return cast(list[object], value)


def as_text(value: object, name: str) -> str:
    """A string. Raises RequestError."""
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    return value


def is_integer(value: object) -> bool:
    """Whether a value is a JSON integer."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_bool(body: Mapping[str, object], name: str, default: bool, within: str = "") -> bool:
    """True or false. within: where a client finds the object, e.g. `tools[0].`. Raises RequestError."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong(within + name, value, "true or false")
    return value


def read_text(body: Mapping[str, object], name: str, within: str = "") -> str | None:
    """A string or None. within: as for read_bool. Raises RequestError."""
    value = body.get(name)
    return None if value is None else as_text(value, within + name)


def read_integer(body: Mapping[str, object], name: str, bounds: Bounds) -> int | None:
    """An integer within bounds, or None. Raises RequestError."""
    value = body.get(name)
    if value is None:
        return None
    if not is_integer(value) or not _is_within(cast(int, value), bounds):
        raise wrong(name, value, "an integer" + _bounds_text(bounds))
    return cast(int, value)


def read_number(body: Mapping[str, object], name: str, bounds: Bounds | Above) -> float | None:
    """A number within bounds, or None. Raises RequestError."""
    value = body.get(name)
    if value is None:
        return None
    is_number = is_integer(value) or isinstance(value, float)
    if not is_number or not _is_within(cast(float, value), bounds):
        raise wrong(name, value, "a number" + _bounds_text(bounds))
    return float(cast(float, value))


def _is_within(value: float, bounds: Bounds | Above) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(bounds, Above):
        return bounds.least < value <= bounds.most
    if value == bounds.off:
        return True
    return (bounds.least is None or value >= bounds.least) and (bounds.most is None or value <= bounds.most)


def _bounds_text(bounds: Bounds | Above) -> str:
    match bounds:
        case Above(least=least, most=most):
            return f" above {least} and of at most {most}"
        case Bounds(least=None, most=None):
            return ""
        case Bounds(least=None, most=most):
            return f" of at most {most}"
        case Bounds(least=least, most=None):
            return f" of at least {least}"
        case Bounds(least=least, most=most, off=None):
            return f" from {least} to {most}"
        case Bounds(least=least, most=most, off=off):
            return f" from {least} to {most}, or {off} for off"
