"""What a tool-call format and a reasoning format are, and what a reader of calls may say; knows no format.

A reader is a generator: it yields None for "more text is needed" and events as soon as they are certain, so a
format is written as if its text were all there, and where the pieces are cut makes no difference.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from frontend.dialects.base import Tool
from frontend.parsers.source import Source
from frontend.tool_grammar import ToolCallFormat


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of this tool begins. From here on it is told: nothing of it becomes text any more.

    id: as the model wrote it, where its format has one.
    """

    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ArgumentsText:
    """More of the arguments; joined, the pieces are one JSON object. May be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call's arguments are whole."""


CallEvent = CallBegun | ArgumentsText | CallEnded


@dataclass(frozen=True, slots=True)
class CallBroken:
    """The call that was begun is none: its arguments stay in pieces. No reader says so, what drives it does.

    written: all of the call so far, as the model wrote it.
    """

    written: str


_T = TypeVar("_T")
Reading = Generator[CallEvent | None, None, _T]

Tools = Mapping[str, Tool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """How a family of models writes tool calls. name: its file's.

    claims: of a chat template's text; no two formats may claim one template. openers: a call section begins behind
    them, wherever they stand. start_openers: the same, but only where a reply, or what follows a call or reasoning,
    begins; they are left for the reader to read. marks: what else the reader looks for; named so that special tokens
    among them are seen, and what is left over of them never reaches a client. read: one section, one call or more;
    white space between its calls is its own to skip. It raises MalformedError for what is no call, and returns behind
    the section's end; the CallBegun of an unknown tool is malformed of itself. grammar: how a call is forced; None
    where it cannot be. has_short_ids: its template takes ids of nine letters and digits only.
    """

    name: str
    claims: Callable[[str], bool]
    read: "Callable[[Source, Tools], Reading[None]]"
    openers: tuple[str, ...] = ()
    start_openers: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    grammar: ToolCallFormat | None = None
    has_short_ids: bool = False


HeaderKind = Literal["text", "reasoning", "call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHeaders:
    """What stands before each message of a reply that is made of messages, and says whose it is.

    begins: marks that open a header, wherever they stand. start_begins: the same, but only where a reply, or what
    follows a message, begins; they are part of the header. end: the mark behind it. kind_of: what a message is, by its
    header; of a call, the tool format reads the header, too.
    """

    begins: tuple[str, ...]
    start_begins: tuple[str, ...]
    end: str
    kind_of: Callable[[str], HeaderKind]


def _at_the_end(begins: tuple[str, ...], prompt: str) -> bool:
    return prompt.rstrip().endswith(tuple(begin.rstrip() for begin in begins))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """How a family of models sets its reasoning apart. name: its file's.

    begins: markers that open reasoning, where a reply, or what follows a call or a dropped mark, begins. ends: those
    that close it. dropped: marks that never reach a client, wherever they stand outside of calls.
    is_ended_by_calls: a tool call's opener ends reasoning, too. headers: of a reply that is made of messages.
    behind_end: what always stands behind the end.
    """

    name: str
    claims: Callable[[str], bool]
    begins: tuple[str, ...]
    ends: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    is_ended_by_calls: bool = False
    headers: MessageHeaders | None = None
    behind_end: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """All text that is never told to a client."""
        headers = self.headers
        of_headers = () if headers is None else (*headers.begins, *headers.start_begins, headers.end)
        return (*self.begins, *self.ends, *self.dropped, *of_headers)

    def is_open_after(self, prompt: str) -> bool:
        """Whether a rendered prompt has opened reasoning by its end, so that the reply goes on in it."""
        return _at_the_end(self.begins, prompt)


def schema_of(tool: Tool) -> Mapping[str, Any]:
    """The JSON schemas of a tool's arguments by name; empty where it names none."""
    properties = (tool.parameters or {}).get("properties")
    return cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
