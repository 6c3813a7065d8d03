"""Turns a settings struct into a typer command's options, so that an option exists in one place only."""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import typer


def command_of(settings_type: type[msgspec.Struct], run: Callable[[dict[str, Any], Path | None], None]) -> Callable:
    """A function for `app.command()`: one option per field plus `--config`; calls run(given flags, config)."""

    def command(**options: Any) -> None:
        config = options.pop("config")
        run({name: value for name, value in options.items() if value not in (None, [])}, config)

    hints = get_type_hints(settings_type, include_extras=True)
    parameters = [_parameter(field, hints[field.name]) for field in msgspec.structs.fields(settings_type)]
    config_option = typer.Option(help="TOML file with the same names; flags win", metavar="FILE")
    parameters.append(_keyword("config", Path | None, config_option))
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]  # inspect reads it
    command.__doc__ = run.__doc__
    return command


def _parameter(field: msgspec.structs.FieldInfo, hint: Any) -> inspect.Parameter:
    hint = _without_none(hint)
    plain, meta = hint.__origin__, hint.__metadata__[0]
    aliases = (meta.extra or {}).get("aliases", ())
    is_many = get_origin(plain) is tuple
    item = _plain(get_args(plain)[0]) if is_many else plain
    found: Any = field.default_factory() if callable(field.default_factory) else field.default
    default = ", ".join(map(str, found)) if is_many else "" if found in (None, False) else str(found)
    option = typer.Option(
        f"--{field.name.replace('_', '-')}",
        *aliases,
        help=meta.description + (f" [default: {default}]" if default else ""),
        metavar=None if get_origin(item) is Literal or item is bool else item.__name__.upper().replace("STR", "TEXT"),
        case_sensitive=False,
    )
    return _keyword(field.name, (list[item] if is_many else item) | None, option)


def _keyword(name: str, type_: Any, option: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=Annotated[type_, option])


def _without_none(hint: Any) -> Any:
    """The one type of `X | None`; any other hint as it is."""
    is_union = get_origin(hint) in (Union, UnionType)
    return next(part for part in get_args(hint) if part is not type(None)) if is_union else hint


def _plain(hint: Any) -> Any:
    return hint.__origin__ if get_origin(hint) is Annotated else hint
