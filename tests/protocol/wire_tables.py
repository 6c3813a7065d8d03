"""How a wire field is written in protocol/README.md: its type with its bounds, and its default."""

from typing import Any

import msgspec
from msgspec import inspect

_POWERS = {2**32: "2^32", 2**53: "2^53", 2**63: "2^63"}


def own_fields(struct: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """The fields that a struct adds to those of its base, in order."""
    return [field for field in msgspec.structs.fields(struct) if field.name in struct.__annotations__]


def described_default(field: msgspec.structs.FieldInfo) -> str:
    """`required`, or what an absent field means."""
    if field.required:
        return "required"
    match field.default:
        case None:
            return "none"
        case bool():
            return "true" if field.default else "false"
        case "" | b"" | ():
            return "empty"
        case msgspec.Struct():
            return "its defaults"
        case _:
            return f"{field.default:g}"


def described_type(field: msgspec.structs.FieldInfo) -> str:
    """Type and bounds; that a field with default none may be nil goes without saying."""
    return _described(inspect.type_info(field.type))


def _described(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata(type=inner):
            return _described(inner)
        case inspect.UnionType(types=types):
            return " or ".join(_described(part) for part in types if not isinstance(part, inspect.NoneType))
        case inspect.VarTupleType(item_type=item, min_length=shortest, max_length=longest):
            bound = f", {shortest} to {longest} items" if shortest else f", at most {longest:,}" if longest else ""
            return f"list of {_item(item)}{bound}"
        case inspect.IntType() | inspect.FloatType():
            return _number(info)
        case inspect.StrType(min_length=shortest, max_length=longest):
            return f"text of {shortest or 0} to {longest} characters" if longest else "text"
        case _:
            return _named(info)


def _item(info: inspect.Type) -> str:
    """Of a list's item it has to be said when it may be nil."""
    may_be_nil = isinstance(info, inspect.UnionType) and info.includes_none
    return _described(info) + (" or none" if may_be_nil else "")


def _named(info: inspect.Type) -> str:
    match info:
        case inspect.StructType(cls=cls) | inspect.EnumType(cls=cls):
            return cls.__name__
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.BytesType():
            return "bytes"
        case inspect.BoolType():
            return "bool"
        case _:
            raise TypeError(f"no word for {info}")


def _number(info: inspect.IntType | inspect.FloatType) -> str:
    bounds = [("≥", info.ge), (">", info.gt), ("≤", info.le), ("<", info.lt)]
    words = [f"{sign} {_bound(value)}" for sign, value in bounds if value is not None]
    kind = "int" if isinstance(info, inspect.IntType) else "float"
    return " ".join([kind, ", ".join(words)]).strip()


def _bound(value: Any) -> str:
    if value + 1 in _POWERS:
        return f"{_POWERS[value + 1]} - 1"
    return _POWERS.get(value, f"{value:g}")
