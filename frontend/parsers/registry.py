"""Every tool-call and reasoning format by name, in the order they are asked, and which of them a template is in.

A format is registered here under its file's name; a second one of a name, or two that claim one template, is an error.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from frontend.parsers.base import ReasoningFormat, ToolFormat
from frontend.parsers.reasoning.think import THINK
from frontend.parsers.tools.hermes import HERMES
from protocol.errors import ErrorCode, ProtocolError

NONE: Final = "none"

_Format = TypeVar("_Format", ToolFormat, ReasoningFormat)


def _by_name(formats: Sequence[_Format]) -> dict[str, _Format]:
    named = {found.name: found for found in formats}
    if len(named) != len(formats) or NONE in named:
        raise ValueError(f"a parser's name is taken twice: {', '.join(found.name for found in formats)}")
    return named


TOOL_FORMATS: Final[Mapping[str, ToolFormat]] = _by_name((HERMES,))
REASONING_FORMATS: Final[Mapping[str, ReasoningFormat]] = _by_name((THINK,))


class ModelFormats(NamedTuple):
    """What a model's replies are read with; None: as text."""

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None


def formats_of(template: str | None, tool_parser: str | None, reasoning_parser: str | None) -> ModelFormats:
    """The formats that were named, or that claim the template. Raises ProtocolError(BAD_SETTING)."""
    return ModelFormats(
        _chosen(TOOL_FORMATS, template, tool_parser, "--tool-parser"),
        _chosen(REASONING_FORMATS, template, reasoning_parser, "--reasoning-parser"),
    )


def check_parser(name: str | None, names: Collection[str], flag: str) -> None:
    """Raises ProtocolError(BAD_SETTING), which lists the names, for one that there is not."""
    if name is not None and name != NONE and name not in names:
        raise ProtocolError(
            ErrorCode.BAD_SETTING, f"{flag} {name}: there is no such parser; take {NONE} or one of {', '.join(names)}"
        )


def _chosen(formats: Mapping[str, _Format], template: str | None, name: str | None, flag: str) -> _Format | None:
    if name is not None:
        check_parser(name, tuple(formats), flag)
        return formats.get(name)
    claiming = [found for found in formats.values() if template is not None and found.claims(template)]
    if len(claiming) > 1:
        names = " and ".join(found.name for found in claiming)
        raise ProtocolError(ErrorCode.BAD_SETTING, f"the chat template is claimed by {names}: choose one with {flag}")
    return claiming[0] if claiming else None
