"""Items of a Responses conversation that belong to OpenAI's own tools: the verdict on each field, and what each says.

Owns no message: where the words go is the transcript's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from frontend.dialects.attachments import is_attachment, note
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, check_nested, plain_path
from frontend.dialects.hosted_tools import as_told, call_note, result_note
from frontend.dialects.openai_messages import read_arguments
from frontend.dialects.values import read_text

Item = Mapping[str, object]

ITEM_FIELDS: Final[FieldTable] = {
    "type": Honoured(),
    "id": Honoured("kept with the item, and found again by item_reference"),
    "status": Harmless("an item is what it is"),
    "created_by": Harmless("who made an item is not told to the model"),
}
_NOTHING: Final[FieldTable] = {}
_CALL_ID: Final[FieldTable] = {"call_id": Honoured("ties an output to its call"), "caller": Named()}
_SERVER: Final[FieldTable] = {"server_label": Honoured("told with the name"), "name": Honoured("told")}
_SEARCH: Final[FieldTable] = {**_CALL_ID, "execution": Harmless("the search is over")}
_OF_THE_IMAGE: Final = Harmless("of an image that the model does not see")

# note: words of the assistant. call, output: as those of a function, for it is the client that ran them.
Telling = Literal["note", "call", "output"]


@dataclass(frozen=True, slots=True)
class HostedItem:
    """One type of item. name: of the tool, as the model reads it, unless the item has one.

    arguments, results: the fields that are told. said: told beside them. verb: what was done with it. is_quiet: nothing
    is told. is_tied_by_id: an output's `id` is that of its call.
    """

    name: str
    telling: Telling = "note"
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    others: FieldTable = field(default_factory=lambda: _NOTHING)
    said: str = ""
    verb: str = "called"
    is_quiet: bool = False
    is_tied_by_id: bool = False

    @property
    def fields(self) -> FieldTable:
        """The verdict on each of its fields."""
        return {
            **ITEM_FIELDS,
            **dict.fromkeys(self.arguments, Honoured("told as the call's arguments")),
            **dict.fromkeys(self.results, Honoured("told as the call's result; a note for each image")),
            **self.others,
        }


HOSTED_ITEMS: Final[Mapping[str, HostedItem]] = {
    "web_search_call": HostedItem("web_search", arguments=("action",)),
    "file_search_call": HostedItem("file_search", arguments=("queries",), results=("results",)),
    "code_interpreter_call": HostedItem(
        "code_interpreter",
        arguments=("code",),
        results=("outputs",),
        others={"container_id": Harmless("the container is not here")},
    ),
    "image_generation_call": HostedItem(
        "image_generation",
        arguments=("revised_prompt",),
        results=("error",),
        others={
            "result": Named(),
            "action": _OF_THE_IMAGE,
            "background": _OF_THE_IMAGE,
            "output_format": _OF_THE_IMAGE,
            "quality": _OF_THE_IMAGE,
            "size": _OF_THE_IMAGE,
            "svg_usage": _OF_THE_IMAGE,
        },
        said=note("image"),
    ),
    "mcp_call": HostedItem(
        "mcp",
        arguments=("arguments",),
        results=("output", "error"),
        others={**_SERVER, "approval_request_id": Harmless("the call was made")},
    ),
    "mcp_approval_request": HostedItem("mcp", arguments=("arguments",), others=_SERVER, verb="wants to call"),
    "mcp_list_tools": HostedItem(
        "mcp",
        others={"server_label": Named(), "tools": Named(([],)), "error": Harmless("those tools are not here")},
        is_quiet=True,
    ),
    "program": HostedItem(
        "program", arguments=("code",), others={**_CALL_ID, "fingerprint": Harmless("only its maker reads it")}
    ),
    "program_output": HostedItem("program", results=("result",), others=_CALL_ID),
    "computer_call": HostedItem(
        "computer", "call", ("action", "actions"), others={**_CALL_ID, "pending_safety_checks": Named(([],))}
    ),
    "computer_call_output": HostedItem(
        "computer",
        "output",
        results=("output",),
        others={**_CALL_ID, "acknowledged_safety_checks": Harmless("the call was made")},
    ),
    "local_shell_call": HostedItem("local_shell", "call", ("action",), others=_CALL_ID),
    "local_shell_call_output": HostedItem(
        "local_shell", "output", results=("output",), others=_CALL_ID, is_tied_by_id=True
    ),
    "shell_call": HostedItem(
        "shell", "call", ("action",), others={**_CALL_ID, "environment": Harmless("it is the client's")}
    ),
    "shell_call_output": HostedItem(
        "shell",
        "output",
        results=("output",),
        others={**_CALL_ID, "max_output_length": Harmless("the output is there")},
    ),
    "apply_patch_call": HostedItem("apply_patch", "call", ("operation",), others=_CALL_ID),
    "apply_patch_call_output": HostedItem("apply_patch", "output", results=("output",), others=_CALL_ID),
    "tool_search_call": HostedItem("tool_search", "call", ("arguments",), others=_SEARCH),
    "tool_search_output": HostedItem(
        "tool_search",
        "output",
        others={**_SEARCH, "tools": Honoured("their names are told, and they are offered from the start")},
    ),
    "compaction": HostedItem(
        "compaction",
        others={"encrypted_content": Named()},
        said="[what was said before was summed up in a form that only its maker can read]",
    ),
}
# Of tools that are newer than this list: that they were called is all that can be told.
CALL_ENDS: Final = ("_call", "_call_output")


def hosted_item(kind: object) -> HostedItem | None:
    """What an item's type is, if it is another provider's tool's."""
    if not isinstance(kind, str):
        return None
    known = HOSTED_ITEMS.get(kind)
    if known is None and kind.endswith(CALL_ENDS):
        is_output = kind.endswith("_output")
        return HostedItem(kind.removesuffix("_output").removesuffix("_call"), is_quiet=is_output, others=_CALL_ID)
    return known


@dataclass(slots=True, eq=False)
class HostedReading:
    """One item, read. Raises RequestError where it is malformed."""

    kind: HostedItem
    item: Item
    where: str
    ignored: dict[str, None] = field(default_factory=dict[str, None])

    def __post_init__(self) -> None:
        self.ignored |= check_nested(self.item, self.kind.fields, self.where)

    @property
    def call_id(self) -> str | None:
        """What ties an output to its call; None where a server ran both."""
        if self.kind.telling == "note":
            return None
        given = read_text(self.item, "call_id", f"{self.where}.")
        return given or (read_text(self.item, "id", f"{self.where}.") if self.kind.is_tied_by_id else None)

    @property
    def name(self) -> str:
        """Of the tool."""
        if "name" not in self.kind.fields:
            return self.kind.name
        names = [read_text(self.item, part, f"{self.where}.") for part in ("server_label", "name")]
        return ".".join(name for name in names if name) or self.kind.name

    @property
    def arguments(self) -> object:
        """For a template: an object, as of a function's call."""
        given = self._given(self.kind.arguments)
        only = next(iter(given.values())) if len(given) == 1 else None
        if isinstance(only, dict):
            return cast(dict[str, object], only)
        return read_arguments(only, f"{self.where}.arguments") if "arguments" in given else given

    def result(self) -> str:
        """Text; of a call that tells none, how it ended."""
        given = self._given(self.kind.results)
        told = [self._told(value, f"{self.where}.{name}") for name, value in given.items()]
        status = self.item.get("status")
        return "\n".join(told) or (status if isinstance(status, str) else "")

    def note(self) -> str:
        """The whole of it, as words of the assistant; none where it is quiet."""
        if self.kind.is_quiet:
            return ""
        given = self._given(self.kind.arguments)
        arguments = next(iter(given.values())) if len(given) == 1 else given or None
        has_call = self.kind.arguments or not (self.kind.results or self.kind.said)
        notes = [call_note(self.name, arguments, self.kind.verb)] if has_call else []
        if self._given(self.kind.results):
            notes.append(result_note(self.name, self.result()))
        return "\n".join([*notes, *([self.kind.said] if self.kind.said else [])])

    def _given(self, names: tuple[str, ...]) -> dict[str, object]:
        return {name: self.item[name] for name in names if self.item.get(name) is not None}

    def _told(self, value: object, where: str) -> str:
        if isinstance(value, list):
            return "\n".join(self._told(part, where) for part in cast(list[object], value))
        if not isinstance(value, dict):
            return as_told(value)
        part = cast(dict[str, object], value)
        kind = part.get("type")
        if isinstance(kind, str) and is_attachment(kind):
            self.ignored[f"{plain_path(where)}.{kind}"] = None
            return note(kind)
        return as_told(part.get("logs") if kind == "logs" else part)
