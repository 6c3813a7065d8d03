"""What is noted of one HTTP request while it is served, and the one log line it leaves."""

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import web

from frontend.dialects.dialect import Framer, SseEvent
from frontend.sse import SseStream
from protocol.messages import Usage

log = logging.getLogger(__name__)

_SANE_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
# What answers nobody any more; nginx's number.
STATUS_CLIENT_GONE: Final = 499


@dataclass(slots=True, eq=False)
class RequestRecord:
    """Filled by the handler as it goes; `sse` and `framer` are there once a stream was made.

    keep: given the last thing that is to be sent, before it is sent; what it returns goes out instead.
    """

    id: str
    started_s: float = field(default_factory=time.monotonic)
    reply_id: str | None = None
    first_token_s: float | None = None
    usage: Usage | None = None
    sse: SseStream | None = None
    framer: Framer | None = None
    error_code: str | None = None
    keep: Callable[[msgspec.Struct], Awaitable[msgspec.Struct]] | None = None

    async def kept(self, last: SseEvent) -> SseEvent:
        """A stream's last event, when what it holds has been kept."""
        return last if self.keep is None else SseEvent(await self.keep(last.content), last.name)

    def note_first_token(self) -> None:
        """Marks the first event; later calls change nothing."""
        if self.first_token_s is None:
            self.first_token_s = time.monotonic()


RECORD: Final = web.RequestKey("record", RequestRecord)


def request_id(given: str | None) -> str:
    """The client's own id when it is sane, otherwise one of ours."""
    return given if given is not None and _SANE_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"


def log_done(request: web.Request, status: int, level: int = logging.INFO) -> None:
    """The request's line."""
    record = request[RECORD]
    fields: dict[str, object] = {
        "request_id": record.id,
        "method": request.method,
        "path": request.path,
        "status": status,
        "duration_ms": (time.monotonic() - record.started_s) * 1000,
    }
    if record.reply_id is not None:
        fields["reply_id"] = record.reply_id
    if record.first_token_s is not None:
        fields["first_token_ms"] = (record.first_token_s - record.started_s) * 1000
    if record.usage is not None:
        fields["prompt_tokens"] = record.usage.prompt_tokens
        fields["completion_tokens"] = record.usage.completion_tokens
    if record.error_code is not None:
        fields["error_code"] = record.error_code
    log.log(level, "request.done", extra=fields)
