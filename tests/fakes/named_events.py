"""Anthropic's streams as a client reads them: named events, and the message that they add up to."""

import json
from dataclasses import dataclass, field
from typing import Any


def named_events(raw: bytes) -> list[dict[str, Any]]:
    """The data of each event of a whole stream; its `event:` line must say its type, and no other line may be there."""
    events: list[dict[str, Any]] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, _, data = block.partition("\n")
        assert name.startswith("event: "), block
        assert data.startswith("data: "), block
        assert "\n" not in data
        content = json.loads(data.removeprefix("data: "))
        assert content["type"] == name.removeprefix("event: ")
        events.append(content)
    return events


@dataclass(slots=True)
class StreamedMessage:
    """What a stream adds up to, checked on the way: one start, one block at a time, indexes in order, one end."""

    events: list[dict[str, Any]]
    blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    pieces: list[list[str]] = field(default_factory=list[list[str]])

    def __post_init__(self) -> None:
        open_index: int | None = None
        for event in self.events:
            match event["type"]:
                case "content_block_start":
                    assert open_index is None
                    open_index = event["index"]
                    assert open_index == len(self.blocks)
                    self.blocks.append(dict(event["content_block"]))
                    self.pieces.append([])
                case "content_block_delta":
                    assert event["index"] == open_index
                    self._gain(event["delta"])
                case "content_block_stop":
                    assert event["index"] == open_index
                    open_index = None
                case "message_delta":
                    assert open_index is None

    def _gain(self, delta: dict[str, Any]) -> None:
        (name,) = [name for name in delta if name != "type"]
        self.pieces[-1].append(delta[name])
        block = self.blocks[-1]
        if delta["type"] == "input_json_delta":
            text = "".join(self.pieces[-1])
            block["input"] = json.loads(text) if is_whole_json(text) else {}
        else:
            block[name] += delta[name]

    @property
    def types(self) -> list[str]:
        """Of the events, without pings."""
        return [event["type"] for event in self.events if event["type"] != "ping"]

    @property
    def text(self) -> str:
        """All text, without reasoning and calls."""
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    @property
    def deltas(self) -> list[str]:
        """The pieces of the text."""
        return [
            text
            for block, pieces in zip(self.blocks, self.pieces, strict=True)
            if block["type"] == "text"
            for text in pieces
        ]

    @property
    def end(self) -> dict[str, Any]:
        """The one message_delta: reason, sequence and usage."""
        (found,) = [event for event in self.events if event["type"] == "message_delta"]
        return {**found["delta"], "usage": found["usage"]}


def is_whole_json(text: str) -> bool:
    """Whether nothing is missing."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True
