"""A frontend in this process over a FakeEngine thread: real HTTP, real sockets, for tests of the HTTP side."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, ClientSession, TCPConnector, web

from frontend.api_keys import ApiKeys
from frontend.app import build_app
from frontend.engine_client import EngineClient
from frontend.http_server import HttpRunner
from frontend.model_text import Parsers, load_model_text
from frontend.parts import FrontendParts
from frontend.settings import Settings
from protocol.endpoint import open_runtime_folder
from protocol.messages import ClientInfo
from tests.fakes.fake_engine import FakeEngine
from tests.fakes.fake_settings import FakeSettings
from tests.fakes.scripts import script_for


@dataclass(slots=True, eq=False)
class Served:
    """What a test talks to."""

    engine: FakeEngine
    parts: FrontendParts
    session: ClientSession
    url: str

    async def post(self, path: str, body: dict[str, Any] | bytes, **options: Any) -> ClientResponse:
        """Sends a body; the reply's head."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return await self.session.post(self.url + path, data=data, headers=headers, **options)

    async def answer(self, path: str, body: dict[str, Any] | bytes, **options: Any) -> tuple[int, Any]:
        """Status and decoded JSON of a reply that is not streamed."""
        async with await self.post(path, body, **options) as response:
            return response.status, json.loads(await response.read())

    def expire(self) -> None:
        """From now on every row is past its deadline."""
        for row in self.engine.rows.live():
            row.deadline_s = 0.0

    def wake(self) -> None:
        """Rows that were silent count from now on, without end."""
        for row in self.engine.rows.live():
            row.script = script_for("!count", self.engine.tokenizer, self.engine.rows.eos_id)

    async def get(self, path: str) -> tuple[int, Any]:
        """Status and decoded JSON."""
        async with self.session.get(self.url + path) as response:
            return response.status, json.loads(await response.read())

    async def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The decoded events of a stream, `[DONE]` as it is."""
        async with await self.post(path, {**body, "stream": True}) as response:
            assert response.status == 200, await response.read()
            return decoded_events(await response.read())


def decoded_events(raw: bytes) -> list[Any]:
    """The events of a whole SSE body; comments are dropped, any other line fails."""
    events: list[Any] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(": "):
            continue
        assert block.startswith("data: "), block
        content = block.removeprefix("data: ")
        assert "\n" not in content
        events.append(content if content == "[DONE]" else json.loads(content))
    return events


def named_events(raw: bytes) -> list[dict[str, Any]]:
    """The events of a whole SSE body in which each has a name, which is its type; comments are dropped."""
    events: list[dict[str, Any]] = []
    for block in raw.decode().removesuffix("\n\n").split("\n\n"):
        if block.startswith(": "):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}", block
        events.append(event)
    return events


def told_usages(raw: bytes) -> list[Any]:
    """Every usage that a stream of any dialect tells, the last one last."""
    if b"event: " in raw:
        events = named_events(raw)
        found = [event.get("usage") or event.get("message", event.get("response", {})).get("usage") for event in events]
    else:
        found = [event.get("usage") for event in decoded_events(raw) if event != "[DONE]"]
    return [usage for usage in found if usage]


@dataclass(frozen=True, slots=True)
class HttpFrontend:
    """A frontend in this process, and a client's session."""

    parts: FrontendParts
    session: ClientSession
    url: str


@asynccontextmanager
async def http_frontend(
    settings: Settings, keys: Sequence[str] = (), *, wait: bool = True
) -> AsyncIterator[HttpFrontend]:
    """Over whichever engine runs in the settings' folder. wait: until it is ready."""
    folder = open_runtime_folder(Path(settings.runtime_dir))
    parsers = Parsers(settings.tool_parser, settings.reasoning_parser)
    client = EngineClient(folder, ClientInfo(name="test", pid=1), partial(load_model_text, parsers=parsers))
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    parts = FrontendParts(settings, client, (url,), ApiKeys(keys))
    runner = HttpRunner(build_app(parts), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    async with asyncio.TaskGroup() as group, ClientSession(connector=TCPConnector(limit=0)) as session:
        task = group.create_task(client.run())
        try:
            if wait:
                await client.wait_ready(60)
            yield HttpFrontend(parts, session, url)
        finally:
            await session.close()
            await runner.cleanup()
            task.cancel()


@asynccontextmanager
async def serving(
    runtime_dir: Path,
    frontend: dict[str, Any] | None = None,
    *,
    wait: bool = True,
    keys: Sequence[str] = (),
    beside: FakeEngine | None = None,
    **engine: Any,
) -> AsyncIterator[Served]:
    """Engine and frontend for the length of the block. wait: until the engine is ready. keys: that are asked for.

    beside: an engine that runs already, for one more frontend.
    """
    fake = beside or FakeEngine(FakeSettings(runtime_dir=str(runtime_dir), **engine)).start()
    settings = Settings(runtime_dir=str(runtime_dir), **(frontend or {}))
    try:
        async with http_frontend(settings, keys=keys, wait=wait) as http:
            yield Served(fake, http.parts, http.session, http.url)
    finally:
        if beside is None:
            fake.stop()
