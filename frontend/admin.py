"""Routes that tell of the server: probes and statistics. None asks the engine anything: they read its last status.

Owns no state.
"""

import os
import time
from typing import Literal

import msgspec
from aiohttp import web

from frontend.parts import PARTS
from protocol.messages import CancelReason, Limits, ParserNames
from protocol.status import EngineStatus


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /readyz. phase: the engine's, or why this frontend has none."""

    ready: bool
    phase: str
    detail: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /livez and /health, as mlx_lm.server's."""

    status: Literal["ok", "unavailable"]


class FrontendFacts(msgspec.Struct, frozen=True, kw_only=True):
    """This frontend's part of /stats. rows: its live rows; cancels_sent: since its start.

    tool_parser, reasoning_parser: the formats that replies are read in; None before a model is there, or for none.
    unread_tool_parser_type: that of the model's tokenizer_config.json, where there is no such parser here.
    """

    pid: int
    listens: tuple[str, ...]
    uptime_s: float
    ready: bool
    phase: str
    detail: str
    rows: int
    requests_total: int
    cancels_sent: dict[CancelReason, int]
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    unread_tool_parser_type: str | None = None


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /stats. engine: its last status, engine_silent_s: seconds old. limits: of rows, once it was greeted."""

    engine: EngineStatus | None
    engine_silent_s: float | None
    limits: Limits | None
    frontend: FrontendFacts


async def livez(request: web.Request) -> web.Response:
    """This process answers."""
    del request
    return _json(Health(status="ok"))


async def readyz(request: web.Request) -> web.Response:
    """200 when a request would be served now, otherwise 503 with the phase."""
    state = request.app[PARTS].client.state
    is_ready = state.phase == "ready"
    return _json(Readiness(ready=is_ready, phase=state.phase, detail=state.detail), 200 if is_ready else 503)


async def health(request: web.Request) -> web.Response:
    """mlx_lm.server's probe."""
    is_ready = request.app[PARTS].client.ready is not None
    return _json(Health(status="ok" if is_ready else "unavailable"), 200 if is_ready else 503)


async def stats(request: web.Request) -> web.Response:
    """The engine's last status and this frontend's own facts."""
    parts = request.app[PARTS]
    client, state = parts.client, parts.client.state
    text = None if client.ready is None else client.ready.text
    parsers = ParserNames() if text is None else text.parsers
    facts = FrontendFacts(
        pid=os.getpid(),
        listens=parts.listens,
        uptime_s=time.monotonic() - parts.started_s,
        ready=state.phase == "ready",
        phase=state.phase,
        detail=state.detail,
        rows=client.row_count,
        requests_total=parts.requests_total,
        cancels_sent=dict(client.cancels_sent()),
        tool_parser=parsers.tools,
        reasoning_parser=parsers.reasoning,
        unread_tool_parser_type=None if text is None else text.unread_parser,
    )
    limits = client.facts.limits if client.facts is not None else None
    return _json(Stats(engine=client.status, engine_silent_s=client.silent_s, limits=limits, frontend=facts))


def _json(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
