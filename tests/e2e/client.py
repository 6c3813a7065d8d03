"""A plain HTTP client: what any program would send and read."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector

from tests.fakes.serving import decoded_events

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Deadlines of a stream that is to be cut by one: a quick machine has said something by the first.
FIRST_TIMEOUT_S, LAST_TIMEOUT_S = 0.3, 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole reply that was not streamed."""

    status: int
    headers: dict[str, str]
    body: Any

    @property
    def text(self) -> str:
        """Text of the first choice."""
        choice = self.body["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]

    @property
    def finish_reason(self) -> str:
        """Of the first choice."""
        return self.body["choices"][0]["finish_reason"]

    @property
    def completion_tokens(self) -> int:
        """From usage."""
        return self.body["usage"]["completion_tokens"]


@dataclass(frozen=True, slots=True)
class Stream:
    """One whole stream: its events, `[DONE]` as it is."""

    events: list[Any]

    @property
    def deltas(self) -> list[str]:
        """Text of each content frame of the first choice."""
        found = []
        for event in self.events:
            for choice in event["choices"] if isinstance(event, dict) and "choices" in event else []:
                text = choice["text"] if "text" in choice else choice["delta"].get("content")
                if text:
                    found.append(text)
        return found

    @property
    def text(self) -> str:
        """The joined deltas."""
        return "".join(self.deltas)

    @property
    def finish_reasons(self) -> list[str]:
        """All that were given, in order."""
        choices = [choice for event in self.events if isinstance(event, dict) for choice in event.get("choices", ())]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]


@dataclass(frozen=True, slots=True)
class Client:
    """Requests against one frontend."""

    session: ClientSession
    url: str

    async def begin(self, path: str, body: Any) -> ClientResponse:
        """The head of a reply; the caller reads or closes it."""
        return await self.session.post(self.url + path, json=body)

    async def ask(self, path: str, body: Any) -> Reply:
        """A whole reply."""
        async with await self.begin(path, body) as response:
            return Reply(response.status, dict(response.headers), json.loads(await response.read()))

    async def stream(self, path: str, body: dict[str, Any]) -> Stream:
        """A whole stream."""
        async with await self.begin(path, {**body, "stream": True}) as response:
            raw = await response.read()
            assert response.status == 200, raw
            assert response.headers["content-type"].startswith("text/event-stream")
            return Stream(decoded_events(raw))

    async def late_stream(self, path: str, body: dict[str, Any]) -> bytes:
        """A stream that its deadline ends. Where nothing was said by then, one with a later deadline."""
        timeout_s = FIRST_TIMEOUT_S
        while timeout_s < LAST_TIMEOUT_S:
            async with await self.begin(path, {**body, "stream": True, "timeout": timeout_s}) as response:
                raw = await response.read()
            if response.status == 200:
                return raw
            assert response.status == 408, raw
            timeout_s *= 2
        raise AssertionError(f"no token within {LAST_TIMEOUT_S} s")


@asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Client]:
    """A client with as many connections as it needs."""
    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=110)) as session:
        yield Client(session, url)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """A chat body with one user message."""
    return {"messages": [{"role": "user", "content": text}], **fields}
