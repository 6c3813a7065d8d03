"""What a dialect does with each field of a body: one declared table each, and the one walk over it.

Owns the verdicts (honour, refuse, or say so); reading a field's value is the dialect's.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from frontend.dialects.values import is_same_json, shown
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MAX_NAME_LENGTH: Final = 64
_INDEX: Final = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Honoured:
    """Read and acted upon. note: where that is less than obvious."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class NeutralOnly:
    """Would change the output and is not supported: only these values, or null, are taken. advice: what to do."""

    neutral: tuple[object, ...] = ()
    advice: str = "leave it out"


@dataclass(frozen=True, slots=True)
class Harmless:
    """Known, without an effect on any reply, and taken with any value. why: the reason it has none."""

    why: str


@dataclass(frozen=True, slots=True)
class Named:
    """Known and without effect, so named to the client like an unknown field, unless it has one of these values."""

    neutral: tuple[object, ...] = ()


FieldRule = Honoured | NeutralOnly | Harmless | Named
FieldTable = Mapping[str, FieldRule]


def check_fields(body: Mapping[str, object], table: FieldTable, prefix: str = "") -> tuple[str, ...]:
    """Walks a body's fields in their order and returns the names of those that are ignored.

    prefix: how a client finds the object, e.g. `stream_options.`. Raises RequestError(UNSUPPORTED)
    with the field, its value and what to do.
    """
    ignored: list[str] = []
    for name, value in body.items():
        match table.get(name):
            case None:
                ignored.append(prefix + name[:MAX_NAME_LENGTH])
            case Honoured() | Harmless():
                pass
            case NeutralOnly(neutral=neutral, advice=advice):
                if not _is_neutral(value, neutral):
                    raise _unsupported(prefix + name, value, neutral, advice)
            case Named(neutral=neutral):
                if not _is_neutral(value, neutral):
                    ignored.append(prefix + name)
            case _ as never:
                assert_never(never)
    return tuple(ignored)


def check_nested(item: Mapping[str, object], table: FieldTable, where: str) -> dict[str, None]:
    """As check_fields, for an object inside an array, or deeper: a long conversation repeats the names.

    where: how a client finds the object, e.g. `input[3].content[0]`; the names have `[]` in place of each index.
    """
    prefix = f"{where}."
    plain = plain_path(prefix)
    return dict.fromkeys(plain + name.removeprefix(prefix) for name in check_fields(item, table, prefix))


def plain_path(where: str) -> str:
    """A place's name with `[]` in place of each index."""
    return _INDEX.sub("[]", where)


def _is_neutral(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or any(is_same_json(value, allowed) for allowed in neutral)


def _unsupported(name: str, value: object, neutral: tuple[object, ...], advice: str) -> RequestError:
    allowed = "".join(f" or send {shown(item)}" for item in neutral[:1])
    return RequestError(
        ErrorCode.UNSUPPORTED,
        f"`{name}` with the value {shown(value)} is not supported: {advice}{allowed}",
        param=name,
    )
