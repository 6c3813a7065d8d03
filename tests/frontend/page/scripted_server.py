"""A server whose answers a test writes: the real page, and streams that stop and go on when the test says so.

For what no engine of the tests says: reasoning, tool calls, broken streams, every kind of refusal.
"""

import asyncio
import json
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from frontend.page.document import page

Piece = bytes | asyncio.Event


@dataclass(frozen=True, slots=True)
class Answer:
    """pieces: written in order; an Event is waited for. is_cut: the connection is closed without an end."""

    pieces: tuple[Piece, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_cut: bool = False


def delta(**fields: Any) -> bytes:
    """A frame of the first choice."""
    return frame({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]})


def finish(reason: str, **usage: int) -> bytes:
    """The last frames of a stream, usage included when there is any."""
    ended = frame({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return ended + (frame({"choices": [], "usage": usage}) if usage else b"") + b"data: [DONE]\n\n"


def frame(content: dict[str, Any]) -> bytes:
    """One event."""
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def said(text: str) -> Answer:
    """A whole answer of these words."""
    return Answer((delta(role="assistant", content=""), delta(content=text), finish("stop")))


def refused(status: int, code: str, message: str, **headers: str) -> Answer:
    """An error in OpenAI's envelope."""
    body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": code}}).encode()
    return Answer((body,), status, headers)


def stats(phase: str = "ready", detail: str = "", **engine: Any) -> dict[str, Any]:
    """A body of /stats; engine: parts of its status that differ."""
    status = {
        "epoch": "e1",
        "pid": 1,
        "phase": phase,
        "uptime_s": 3700.0,
        "restarts": 1,
        "model": {"id": "scripted", "path": "p", "dtype": "bfloat16", "device": "cpu", "context_length": 8192},
        "batching": {"mode": "batch", "reason": ""},
        "rows": {"waiting": 0, "prefilling": 0, "decoding": 0},
        "step": {"count": 5, "age_ms": 0.0, "last_ms": 21.0},
        "tokens": {"prompt_total": 1200, "generated_total": 3400, "generated_per_s": 0.0},
        "memory": {"active_bytes": 0, "cache_bytes": 0, "peak_bytes": 0, "weights_bytes": 0, "kv_bytes": 0},
        "counters": {"finished": 7, "cancelled": 2, "failed": 1, "rejected": 0},
        "frontends": [{"name": "f", "pid": 2}],
    }
    return {
        "engine": {**status, **engine},
        "engine_silent_s": 0.2,
        "limits": {"max_rows": 8, "max_waiting": 64, "max_frame_bytes": 1},
        "frontend": {"phase": phase, "ready": phase == "ready", "detail": detail, "rows": 0},
    }


@dataclass(slots=True, eq=False)
class ScriptedServer:
    """answers: given in order, one a request. heard: the bodies that came. key: asked for when it is not ''."""

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque[Answer])
    heard: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    left: int = 0
    stats: dict[str, Any] = field(default_factory=stats)
    models: tuple[str, ...] = ("scripted",)
    key: str = ""

    def _is_locked(self, request: web.Request) -> bool:
        return self.key != "" and request.headers.get("authorization") != f"Bearer {self.key}"

    async def tell_stats(self, request: web.Request) -> web.StreamResponse:
        """GET /stats."""
        return await self._locked(request) if self._is_locked(request) else web.json_response(self.stats)

    async def tell_models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models."""
        if self._is_locked(request):
            return await self._locked(request)
        return web.json_response({"data": [{"id": name, "max_model_len": 8192} for name in self.models]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        if self._is_locked(request):
            return await self._locked(request)
        self.heard.append(await request.json())
        return await self._play(request, self.answers.popleft())

    async def _locked(self, request: web.Request) -> web.StreamResponse:
        return await self._play(request, refused(401, "invalid_api_key", "the API key is missing or wrong"))

    async def _play(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        await response.prepare(request)
        try:
            for piece in answer.pieces:
                if isinstance(piece, asyncio.Event):
                    await piece.wait()
                else:
                    await response.write(piece)
            if answer.is_cut:
                assert request.transport is not None
                request.transport.abort()
            else:
                await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        return response


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    """Serves for the length of the block."""
    server = ScriptedServer()
    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get("/stats", server.tell_stats)
    app.router.add_get("/v1/models", server.tell_models)
    app.router.add_post("/v1/chat/completions", server.chat)
    listener = socket.create_server(("127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    try:
        yield server
    finally:
        await runner.cleanup()
