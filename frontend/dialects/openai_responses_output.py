"""One output item of a Responses stream while it grows: the events of its beginning, its middle and its end.

Owns which events an item of each type has; when an item begins and ends is the framer's.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from frontend.dialects.openai_logprobs import ChatEntry
from frontend.dialects.openai_messages import CUSTOM_INPUT
from frontend.dialects.openai_responses_events import (
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartAdded,
    ContentPartDone,
    CustomInputDelta,
    CustomInputDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseEvent,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from frontend.dialects.openai_responses_objects import (
    CustomCallItem,
    FunctionCallItem,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)
from frontend.dialects.openai_responses_tools import ToolOrigin

_SEAL: Final = "convoy-reasoning:"

Events = list[ResponseEvent]


class Place(NamedTuple):
    """Where an item stands. number: of the next event of the stream."""

    id: str
    output_index: int
    number: Callable[[], int]


class Ended(NamedTuple):
    """The last events of an item, and the item."""

    events: Events
    item: OutputItem


@dataclass(slots=True, eq=False)
class OpenMessage:
    """A message with its one part of text."""

    place: Place
    _pieces: list[str] = field(default_factory=list[str])
    _entries: list[ChatEntry] = field(default_factory=list[ChatEntry])

    def begin(self) -> Events:
        """The item, and its empty part."""
        id_, index, number = self.place
        item = MessageItem(id=id_, status="in_progress")
        return [
            OutputItemAdded(sequence_number=number(), output_index=index, item=item),
            ContentPartAdded(sequence_number=number(), item_id=id_, output_index=index, part=OutputText(text="")),
        ]

    def add(self, text: str, entries: Sequence[ChatEntry] = ()) -> Events:
        """More text."""
        id_, index, number = self.place
        self._pieces.append(text)
        self._entries += entries
        logprobs = tuple(entries)
        delta = OutputTextDelta(
            sequence_number=number(), item_id=id_, output_index=index, delta=text, logprobs=logprobs
        )
        return [delta]

    def end(self, status: ItemStatus) -> Ended:
        """The whole text, the whole part, the whole item."""
        id_, index, number = self.place
        item, part = self.item(status), self._part()
        return Ended(
            [
                OutputTextDone(
                    sequence_number=number(), item_id=id_, output_index=index, text=part.text, logprobs=part.logprobs
                ),
                ContentPartDone(sequence_number=number(), item_id=id_, output_index=index, part=part),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )

    def item(self, status: ItemStatus) -> MessageItem:
        """With what has come."""
        return MessageItem(id=self.place.id, status=status, content=(self._part(),))

    def _part(self) -> OutputText:
        return OutputText(text="".join(self._pieces), logprobs=tuple(self._entries))


class ReasoningKind(NamedTuple):
    """How reasoning is told: its part, and the events of the part and of its text."""

    part: Callable[..., ReasoningText | SummaryText]
    part_added: Callable[..., ResponseEvent]
    delta: Callable[..., ResponseEvent]
    text_done: Callable[..., ResponseEvent]
    part_done: Callable[..., ResponseEvent]


AS_TEXT: Final = ReasoningKind(ReasoningText, ContentPartAdded, ReasoningTextDelta, ReasoningTextDone, ContentPartDone)
# For a client that asked for a summary: Codex and the AI SDK show nothing else of it.
AS_SUMMARY: Final = ReasoningKind(SummaryText, SummaryPartAdded, SummaryTextDelta, SummaryTextDone, SummaryPartDone)


@dataclass(slots=True, eq=False)
class OpenReasoning:
    """Reasoning as the model writes it. is_sealed: the item has encrypted_content, too."""

    place: Place
    kind: ReasoningKind
    is_sealed: bool
    _pieces: list[str] = field(default_factory=list[str])

    def begin(self) -> Events:
        """The item, and its empty part."""
        id_, index, number = self.place
        added = OutputItemAdded(sequence_number=number(), output_index=index, item=self._item("in_progress", ()))
        part = self.kind.part(text="")
        return [added, self.kind.part_added(sequence_number=number(), item_id=id_, output_index=index, part=part)]

    def add(self, text: str) -> Events:
        """More reasoning."""
        id_, index, number = self.place
        self._pieces.append(text)
        return [self.kind.delta(sequence_number=number(), item_id=id_, output_index=index, delta=text)]

    def end(self, status: ItemStatus) -> Ended:
        """The whole text, the whole part, the whole item."""
        id_, index, number = self.place
        item, part = self.item(status), self._part()
        return Ended(
            [
                self.kind.text_done(sequence_number=number(), item_id=id_, output_index=index, text=part.text),
                self.kind.part_done(sequence_number=number(), item_id=id_, output_index=index, part=part),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )

    def item(self, status: ItemStatus) -> ReasoningItem:
        """With what has come."""
        part = self._part()
        sealed = _sealed(part.text) if self.is_sealed else msgspec.UNSET
        return msgspec.structs.replace(self._item(status, (part,)), encrypted_content=sealed)

    def _part(self) -> ReasoningText | SummaryText:
        return self.kind.part(text="".join(self._pieces))

    def _item(self, status: ItemStatus, parts: tuple[Any, ...]) -> ReasoningItem:
        if self.kind is AS_SUMMARY:
            return ReasoningItem(id=self.place.id, status=status, summary=parts)
        return ReasoningItem(id=self.place.id, status=status, content=parts)


@dataclass(slots=True, eq=False)
class OpenFunctionCall:
    """A call of a function."""

    place: Place
    call_id: str
    origin: ToolOrigin
    _pieces: list[str] = field(default_factory=list[str])

    def begin(self) -> Events:
        """The item, with no arguments yet."""
        _, index, number = self.place
        return [OutputItemAdded(sequence_number=number(), output_index=index, item=self.item("in_progress"))]

    def add(self, text: str) -> Events:
        """More arguments."""
        id_, index, number = self.place
        self._pieces.append(text)
        return [ArgumentsDelta(sequence_number=number(), item_id=id_, output_index=index, delta=text)]

    def end(self, status: ItemStatus) -> Ended:
        """The whole arguments, the whole item."""
        id_, index, number = self.place
        item = self.item(status)
        done = ArgumentsDone(
            sequence_number=number(), item_id=id_, output_index=index, name=item.name, arguments=item.arguments
        )
        return Ended([done, OutputItemDone(sequence_number=number(), output_index=index, item=item)], item)

    def item(self, status: ItemStatus) -> FunctionCallItem:
        """With what has come."""
        return FunctionCallItem(
            id=self.place.id,
            status=status,
            arguments="".join(self._pieces),
            call_id=self.call_id,
            name=self.origin.name,
            namespace=self.origin.namespace or msgspec.UNSET,
        )


@dataclass(slots=True, eq=False)
class OpenCustomCall:
    """A call of a custom tool, which the model makes as a function of one string."""

    place: Place
    call_id: str
    origin: ToolOrigin
    _pieces: list[str] = field(default_factory=list[str])

    def begin(self) -> Events:
        """The item, with no input yet."""
        _, index, number = self.place
        return [OutputItemAdded(sequence_number=number(), output_index=index, item=self.item("in_progress"))]

    def add(self, text: str) -> Events:
        """Nothing yet: the input is inside a JSON string."""
        self._pieces.append(text)
        return []

    def end(self, status: ItemStatus) -> Ended:
        """The whole input, the whole item."""
        id_, index, number = self.place
        item = self.item(status)
        return Ended(
            [
                CustomInputDelta(sequence_number=number(), item_id=id_, output_index=index, delta=item.input),
                CustomInputDone(sequence_number=number(), item_id=id_, output_index=index, input=item.input),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )

    def item(self, status: ItemStatus) -> CustomCallItem:
        """With what has come."""
        return CustomCallItem(
            id=self.place.id,
            status=status,
            call_id=self.call_id,
            input=custom_input("".join(self._pieces)),
            name=self.origin.name,
            namespace=self.origin.namespace or msgspec.UNSET,
        )


OpenItem = OpenMessage | OpenReasoning | OpenFunctionCall | OpenCustomCall


def custom_input(arguments: str) -> str:
    """The one string among a custom call's arguments; arguments that the model got wrong stay as they are."""
    try:
        value: Any = msgspec.json.decode(arguments, type=dict[str, Any]).get(CUSTOM_INPUT)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    return value if isinstance(value, str) else arguments


def unsealed(content: str) -> str | None:
    """The reasoning in an encrypted_content that Convoy made; None for another server's."""
    if not content.startswith(_SEAL):
        return None
    try:
        return base64.b64decode(content.removeprefix(_SEAL), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _sealed(text: str) -> str:
    """Not secret, for the client has the text anyway: what a client that keeps only this field gives back."""
    return _SEAL + base64.b64encode(text.encode()).decode()
