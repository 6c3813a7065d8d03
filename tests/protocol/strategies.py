"""Hypothesis strategies for wire structs, read from their own types and bounds."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

# MessagePack's own range.
_LEAST_INT, _GREATEST_INT = -(2**63), 2**64 - 1


def wire_values(type_: Any) -> st.SearchStrategy[Any]:
    """Values of any type that msgspec can describe and the wire uses."""
    return _of(inspect.type_info(type_))


def _of(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            return st.fixed_dictionaries({field.name: _of(field.type) for field in fields}).map(
                lambda values, cls=cls: cls(**values)
            )
        case inspect.UnionType(types=types):
            return st.one_of([_of(part) for part in types])
        case inspect.VarTupleType(item_type=item, min_length=shortest, max_length=longest):
            return st.lists(_of(item), min_size=shortest or 0, max_size=min(longest or 4, 4)).map(tuple)
        case inspect.IntType() | inspect.FloatType():
            return _number(info)
        case inspect.StrType(min_length=shortest, max_length=longest):
            return st.text(min_size=shortest or 0, max_size=min(longest or 40, 40))
        case _:
            return _plain(info)


def _number(info: inspect.IntType | inspect.FloatType) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect.IntType):
        least = info.ge if info.ge is not None else _LEAST_INT
        greatest = info.le if info.le is not None else (_GREATEST_INT if info.lt is None else info.lt - 1)
        return st.integers(int(least), int(greatest))
    return st.floats(
        min_value=info.ge if info.ge is not None else info.gt,
        max_value=info.le,
        exclude_min=info.gt is not None,
        allow_nan=False,
    )


def _plain(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.BytesType():
            return st.binary(max_size=64)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case _:
            raise TypeError(f"no strategy for {info}")


def structs_of(module: Any) -> dict[str, type[msgspec.Struct]]:
    """The structs that a module defines itself, by name, in source order."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and (value.__module__, value.__name__) == (module.__name__, name)
    }
