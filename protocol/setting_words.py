"""What is wrong with a settings struct's value, in the words of who typed it: the flag, its value, and what it takes.

Owns the words of types and limits; where values come from is settings', or the caller's.
"""

import shlex
import types
import typing
from dataclasses import dataclass
from typing import Any, cast

import msgspec


@dataclass(frozen=True, slots=True)
class WrongSetting:
    """names: of the field, the option's first. value: as it was given; of a list the item. expected: what it takes."""

    field: str
    names: tuple[str, ...]
    value: object
    expected: str

    @property
    def of_option(self) -> str:
        """As for who typed it on a command line."""
        first, *others = self.names
        return self._told(f"{first} ({', '.join(others)})" if others else first)

    @property
    def of_key(self) -> str:
        """As for who wrote it in a file."""
        return self._told(self.field)

    def _told(self, name: str) -> str:
        shown = shlex.quote(self.value) if isinstance(self.value, str) else str(self.value)
        return f"{name} {shown}: must be {self.expected}"


def option_names(field: str, hint: Any) -> tuple[str, ...]:
    """Every name of a field's option."""
    _, metas = unwrapped(hint)
    aliases = next((meta.extra["aliases"] for meta in metas if meta.extra and "aliases" in meta.extra), ())
    return (f"--{field.replace('_', '-')}", *aliases)


def wrong_setting(settings_type: type[msgspec.Struct], values: dict[str, Any], *, strict: bool) -> WrongSetting | None:
    """The first value that its field does not take. strict: a number is no text."""
    hints = typing.get_type_hints(settings_type, include_extras=True)
    for name, value in values.items():
        if not _fits(value, hints[name], strict):
            names = option_names(name, hints[name])
            return _wrong_item(name, names, value, hints[name], strict=strict)
    return None


def unwrapped(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """The plain type under Annotated and `| None`, with every Meta met on the way."""
    metas: list[msgspec.Meta] = []
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            metas += [item for item in hint.__metadata__ if isinstance(item, msgspec.Meta)]
            hint = hint.__origin__
        elif origin in (typing.Union, types.UnionType):
            hint = next(part for part in typing.get_args(hint) if part is not type(None))
        else:
            return hint, metas


def _fits(value: object, hint: Any, strict: bool) -> bool:
    try:
        msgspec.convert(value, type=hint, strict=strict)
    except msgspec.ValidationError:
        return False
    return True


def _wrong_item(field: str, names: tuple[str, ...], value: object, hint: Any, *, strict: bool) -> WrongSetting:
    """Of a list the item that is wrong, or the list itself."""
    plain, metas = unwrapped(hint)
    if typing.get_origin(plain) is not tuple:
        return WrongSetting(field, names, value, expected_words(hint))
    item_hint = typing.get_args(plain)[0]
    wrong = [item for item in _items(value) if not _fits(item, item_hint, strict)]
    if wrong:
        return WrongSetting(field, names, wrong[0], expected_words(item_hint))
    return WrongSetting(field, names, value, "given " + _span(_limits(metas), "times", "min_length", "max_length"))


def _items(value: object) -> list[object]:
    return cast(list[object], value) if isinstance(value, list) else []


def expected_words(hint: Any) -> str:
    """What a field of this type takes."""
    plain, metas = unwrapped(hint)
    limits = _limits(metas)
    said = next((meta.extra["expected"] for meta in metas if meta.extra and "expected" in meta.extra), None)
    if said is not None:
        return said
    if typing.get_origin(plain) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(plain)))
    if plain is bool:
        return "true or false"
    if plain is str:
        lengths = {name: limits[name] for name in ("min_length", "max_length") if name in limits}
        if lengths == {"min_length": 1}:
            return "a text that is not empty"
        return "a text" + (" of " + _span(limits, "characters", "min_length", "max_length") if lengths else "")
    number = "a whole number" if plain is int else "a number"
    return f"{number}{_bounds(limits)}"


def _limits(metas: list[msgspec.Meta]) -> dict[str, Any]:
    names = ("ge", "gt", "le", "lt", "min_length", "max_length")
    return {name: getattr(meta, name) for meta in metas for name in names if getattr(meta, name) is not None}


def _span(limits: dict[str, Any], unit: str, least: str, most: str) -> str:
    if least in limits and most in limits:
        return f"{limits[least]} to {limits[most]} {unit}"
    return f"at least {limits[least]} {unit}" if least in limits else f"at most {limits[most]} {unit}"


def _bounds(limits: dict[str, Any]) -> str:
    if {"ge", "le"} <= limits.keys():
        return f" from {limits['ge']} to {limits['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    told = [f"{word} {limits[name]}" for name, word in words.items() if name in limits]
    return "".join(f" {part}" for part in [" and ".join(told)] if part)
