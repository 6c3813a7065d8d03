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
from frontend.dialects.openai_responses_tools import CUSTOM_INPUT, ToolOrigin

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
        part = OutputText(text="".join(self._pieces), logprobs=tuple(self._entries))
        item = MessageItem(id=id_, status=status, content=(part,))
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


@dataclass(slots=True, eq=False)
class OpenReasoning:
    """Reasoning as the model writes it. is_sealed: the item has encrypted_content, too."""

    place: Place
    is_sealed: bool
    _pieces: list[str] = field(default_factory=list[str])

    def begin(self) -> Events:
        """The item, and its empty part."""
        id_, index, number = self.place
        item = ReasoningItem(id=id_, status="in_progress", content=())
        return [
            OutputItemAdded(sequence_number=number(), output_index=index, item=item),
            ContentPartAdded(sequence_number=number(), item_id=id_, output_index=index, part=ReasoningText(text="")),
        ]

    def add(self, text: str) -> Events:
        """More reasoning."""
        id_, index, number = self.place
        self._pieces.append(text)
        return [ReasoningTextDelta(sequence_number=number(), item_id=id_, output_index=index, delta=text)]

    def end(self, status: ItemStatus) -> Ended:
        """The whole text, the whole part, the whole item."""
        id_, index, number = self.place
        part = ReasoningText(text="".join(self._pieces))
        item = ReasoningItem(
            id=id_, status=status, content=(part,), encrypted_content=_sealed(part.text, self.is_sealed)
        )
        return Ended(
            [
                ReasoningTextDone(sequence_number=number(), item_id=id_, output_index=index, text=part.text),
                ContentPartDone(sequence_number=number(), item_id=id_, output_index=index, part=part),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )


@dataclass(slots=True, eq=False)
class OpenSummary:
    """Reasoning for a client that asked for a summary: Codex and the AI SDK show nothing else of it."""

    place: Place
    is_sealed: bool
    _pieces: list[str] = field(default_factory=list[str])

    def begin(self) -> Events:
        """The item, and its empty summary."""
        id_, index, number = self.place
        item = ReasoningItem(id=id_, status="in_progress")
        return [
            OutputItemAdded(sequence_number=number(), output_index=index, item=item),
            SummaryPartAdded(sequence_number=number(), item_id=id_, output_index=index, part=SummaryText(text="")),
        ]

    def add(self, text: str) -> Events:
        """More reasoning."""
        id_, index, number = self.place
        self._pieces.append(text)
        return [SummaryTextDelta(sequence_number=number(), item_id=id_, output_index=index, delta=text)]

    def end(self, status: ItemStatus) -> Ended:
        """The whole text, the whole part, the whole item."""
        id_, index, number = self.place
        part = SummaryText(text="".join(self._pieces))
        item = ReasoningItem(
            id=id_, status=status, summary=(part,), encrypted_content=_sealed(part.text, self.is_sealed)
        )
        return Ended(
            [
                SummaryTextDone(sequence_number=number(), item_id=id_, output_index=index, text=part.text),
                SummaryPartDone(sequence_number=number(), item_id=id_, output_index=index, part=part),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )


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
        return [OutputItemAdded(sequence_number=number(), output_index=index, item=self._item("in_progress"))]

    def add(self, text: str) -> Events:
        """More arguments."""
        id_, index, number = self.place
        self._pieces.append(text)
        return [ArgumentsDelta(sequence_number=number(), item_id=id_, output_index=index, delta=text)]

    def end(self, status: ItemStatus) -> Ended:
        """The whole arguments, the whole item."""
        id_, index, number = self.place
        item = self._item(status)
        done = ArgumentsDone(
            sequence_number=number(), item_id=id_, output_index=index, name=item.name, arguments=item.arguments
        )
        return Ended([done, OutputItemDone(sequence_number=number(), output_index=index, item=item)], item)

    def _item(self, status: ItemStatus) -> FunctionCallItem:
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
        return [OutputItemAdded(sequence_number=number(), output_index=index, item=self._item("in_progress", ""))]

    def add(self, text: str) -> Events:
        """Nothing yet: the input is inside a JSON string."""
        self._pieces.append(text)
        return []

    def end(self, status: ItemStatus) -> Ended:
        """The whole input, the whole item."""
        id_, index, number = self.place
        text = custom_input("".join(self._pieces))
        item = self._item(status, text)
        return Ended(
            [
                CustomInputDelta(sequence_number=number(), item_id=id_, output_index=index, delta=text),
                CustomInputDone(sequence_number=number(), item_id=id_, output_index=index, input=text),
                OutputItemDone(sequence_number=number(), output_index=index, item=item),
            ],
            item,
        )

    def _item(self, status: ItemStatus, text: str) -> CustomCallItem:
        return CustomCallItem(
            id=self.place.id,
            status=status,
            call_id=self.call_id,
            input=text,
            name=self.origin.name,
            namespace=self.origin.namespace or msgspec.UNSET,
        )


OpenItem = OpenMessage | OpenReasoning | OpenSummary | OpenFunctionCall | OpenCustomCall


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


def _sealed(text: str, is_sealed: bool) -> str | msgspec.UnsetType:
    """Not secret, for the client has the text anyway: what a client that keeps only this field gives back."""
    return _SEAL + base64.b64encode(text.encode()).decode() if is_sealed else msgspec.UNSET
