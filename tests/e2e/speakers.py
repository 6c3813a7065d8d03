"""The four dialects as one client speaks them: a body from a text and common fields, and what a reply told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.e2e.client import CHAT, COMPLETIONS, Client, Reply
from tests.fakes.named_events import StreamedMessage
from tests.fakes.serving import decoded_events, named_events

_ENDS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "completed": "stop"}


class Told(NamedTuple):
    """A reply in common words. ends: `stop` or `length`, each that was told. tokens: of the prompt and of the reply."""

    text: str
    ends: list[str]
    tokens: list[int]
    deltas: list[str]


@dataclass(frozen=True, slots=True)
class Speaker:
    """A dialect. limit, stops: its names for max_tokens and stop. options: of a stream that tells its usage."""

    path: str
    put: Callable[[str], dict[str, Any]]
    whole: Callable[[dict[str, Any]], Told]
    stream: Callable[[bytes], Told]
    limit: str = "max_tokens"
    stops: str = "stop"
    options: tuple[tuple[str, Any], ...] = ()

    def body(self, text: str, *, limit: int | None = None, stops: Any = None, **fields: Any) -> dict[str, Any]:
        """A request; the other fields have one name everywhere."""
        named = {self.limit: limit, self.stops: stops}
        return {**self.put(text), **{name: value for name, value in named.items() if value is not None}, **fields}

    async def ask(self, client: Client, text: str, **fields: Any) -> Told:
        """A whole reply."""
        reply = await client.ask(self.path, self.body(text, **fields))
        assert reply.status == 200, reply.body
        return self.whole(reply.body)

    async def listen(self, client: Client, text: str, **fields: Any) -> Told:
        """A stream to its end. Its lines are events, their names, comments and blank ones."""
        body = {**self.body(text, **fields), "stream": True, **dict(self.options)}
        async with await client.begin(self.path, body) as response:
            raw = await response.read()
            assert response.status == 200, raw
        assert {line.partition(b":")[0] for line in raw.splitlines()} <= {b"data", b"event", b""}
        assert raw.endswith(b"data: [DONE]\n\n") == (self.path in (CHAT, COMPLETIONS))
        return self.stream(raw)

    def code(self, reply: Reply) -> str:
        """Of an error."""
        error = reply.body["error"]
        return error["details"]["error_code"] if self.path == "/v1/messages" else error["code"]


def _openai(body: dict[str, Any]) -> Told:
    reply = Reply(200, {}, body)
    usage = body["usage"]
    return Told(reply.text, [reply.finish_reason], [usage["prompt_tokens"], usage["completion_tokens"]], [])


def _openai_stream(raw: bytes) -> Told:
    *events, _ = decoded_events(raw)
    *frames, last = events
    choices = [choice for frame in frames for choice in frame["choices"]]
    texts = [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]
    ends = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert [frame["usage"] for frame in frames] == [None] * len(frames)
    usage = last["usage"]
    deltas = [text for text in texts if text]
    return Told("".join(deltas), ends, [usage["prompt_tokens"], usage["completion_tokens"]], deltas)


def _response(body: dict[str, Any]) -> Told:
    texts = [part["text"] for item in body["output"] for part in item["content"]]
    usage = body["usage"]
    end = _ENDS.get(body["status"]) or _ENDS[{"max_output_tokens": "max_tokens"}[body["incomplete_details"]["reason"]]]
    return Told("".join(texts), [end], [usage["input_tokens"], usage["output_tokens"]], [])


def _response_stream(raw: bytes) -> Told:
    events = named_events(raw)
    told = _response(events[-1]["response"])
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == told.text
    return told._replace(deltas=deltas)


def _message(body: dict[str, Any]) -> Told:
    texts = [block["text"] for block in body["content"]]
    return Told("".join(texts), [_ENDS[body["stop_reason"]]], message_tokens(body["usage"]), [])


def _message_stream(raw: bytes) -> Told:
    found = StreamedMessage(named_events(raw))
    return Told(found.text, [_ENDS[found.end["stop_reason"]]], message_tokens(found.end["usage"]), found.deltas)


def message_tokens(usage: dict[str, Any]) -> list[int]:
    """Of prompt and reply: Anthropic counts what was found in the cache apart from the input."""
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    return [read, usage["output_tokens"]]


def _messages(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


_USAGE = (("stream_options", {"include_usage": True}),)
SPEAKERS = {
    "chat": Speaker(CHAT, _messages, _openai, _openai_stream, options=_USAGE),
    "completions": Speaker(COMPLETIONS, lambda text: {"prompt": text}, _openai, _openai_stream, options=_USAGE),
    "responses": Speaker(
        "/v1/responses", lambda text: {"input": text}, _response, _response_stream, limit="max_output_tokens"
    ),
    "messages": Speaker("/v1/messages", _messages, _message, _message_stream, stops="stop_sequences"),
}
