"""Settings as frozen structs whose fields are the command-line options; no environment, no globals."""

import argparse
import typing
from typing import Annotated, Any, NoReturn, TypeVar

import msgspec

from protocol.errors import ErrorCode, ProtocolError
from protocol.setting_words import option_names, unwrapped, wrong_setting

Settings = TypeVar("Settings", bound=msgspec.Struct)

# Of a web page, as its browser sends it: no path behind it. `null` is a page without one.
Origin = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^/\s,]+)$",
        extra={"expected": "http://HOST or http://HOST:PORT, without a path, or `*` for any"},
    ),
]
# The supervisor's options and the frontend's.
TemplateOption = Annotated[
    str, msgspec.Meta(min_length=1, description="in place of the model's: a file, or the template itself")
]
TemplateVariablesOption = Annotated[
    str, msgspec.Meta(description='JSON object of variables for the template, as {"enable_thinking": false}')
]
ToolParserOption = Annotated[
    str,
    msgspec.Meta(min_length=1, description="format of the model's tool calls, or none; left out: its template says"),
]
ReasoningParserOption = Annotated[
    str, msgspec.Meta(min_length=1, description="format of the model's reasoning, or none; left out: its template says")
]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ProtocolError(ErrorCode.BAD_SETTING, f"{self.prog}: {message}")


def parse_settings(settings_type: type[Settings], arguments: list[str], program: str) -> Settings:
    """One option per field: `max_rows` is `--max-rows`. A bool takes no value, a tuple may be repeated.

    A field's help and aliases come from its `Meta(description=…, extra={"aliases": (…)})`.
    Raises ProtocolError(BAD_SETTING) with the option, its value and what it takes.
    """
    parser = _Parser(prog=program, description=settings_type.__doc__, allow_abbrev=False)
    fields = msgspec.structs.fields(settings_type)
    hints = typing.get_type_hints(settings_type, include_extras=True)
    for field in fields:
        _add_option(parser, field, hints[field.name])
    for argument in arguments:
        if not is_text(argument):
            raise ProtocolError(ErrorCode.BAD_SETTING, f"{program}: {argument!r} is not UTF-8 text")
    values = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    wrong = wrong_setting(settings_type, values, strict=False)
    if wrong is not None:
        raise ProtocolError(ErrorCode.BAD_SETTING, f"{program}: {wrong.of_option}")
    return msgspec.convert(values, type=settings_type, strict=False)


def is_template(text: str) -> bool:
    """Whether an option holds a chat template itself, and not the name of a file with one."""
    return "{" in text


def changed_settings(settings: msgspec.Struct) -> dict[str, Any]:
    """The fields away from their defaults: what somebody has said."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(settings)}
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if value != defaults[name]}


def is_text(text: str) -> bool:
    """Whether it can be sent and shown: an argument or a path may hold bytes that are no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _add_option(parser: argparse.ArgumentParser, field: msgspec.structs.FieldInfo, hint: Any) -> None:
    plain, metas = unwrapped(hint)
    description = next((meta.description for meta in metas if meta.description), "")
    options: dict[str, Any] = {"dest": field.name, "default": None, "help": description.replace("%", "%%")}
    if plain is bool:
        options["action"] = "store_true"
    elif typing.get_origin(plain) is tuple:
        options["action"] = "append"
    elif typing.get_origin(plain) is typing.Literal:
        options["choices"] = typing.get_args(plain)
    parser.add_argument(*option_names(field.name, hint), required=field.required, **options)
