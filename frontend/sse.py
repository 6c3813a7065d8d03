"""Server-sent events: the framing, and one stream to one client, bounded in bytes and in time.

Owns the HTTP response of a stream; what a frame says is the dialect's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

DONE: Final = b"data: [DONE]\n\n"
# aiohttp waits for the socket each 64 KiB; the transport may hold this much more.
_TRANSPORT_BUFFER_BYTES: Final = 16 * 1024
_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

_encoder = msgspec.json.Encoder()


class ClientGoneError(Exception):
    """The client closed its connection, or left it unread for too long."""


def frame(content: msgspec.Struct, name: str | None = None) -> bytes:
    """One event: its `event:` line, if it has a name, and its `data:` line."""
    data = b"data: " + _encoder.encode(content) + b"\n\n"
    return data if name is None else b"event: " + name.encode() + b"\n" + data


def comment(text: str) -> bytes:
    """A line that clients skip: `: text` and the blank line that ends it. text: one line."""
    return b": " + text.encode() + b"\n\n"


class SseStream:
    """The response to one request, opened at its first write."""

    def __init__(self, request: web.Request, headers: Mapping[str, str], stall_s: float) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={**_HEADERS, **headers})
        self._stall_s = stall_s
        self._is_open = False

    @property
    def response(self) -> web.StreamResponse:
        """What the handler returns."""
        return self._response

    @property
    def is_open(self) -> bool:
        """Whether the status line is out: from then on an error is a frame."""
        return self._is_open

    async def write(self, frames: Sequence[bytes]) -> None:
        """Sends frames in one write. Raises ClientGoneError when the client is gone or does not read."""
        payload = b"".join(frames)
        try:
            if not self._is_open:
                await self._open()
            if self._can_block(len(payload)):
                async with asyncio.timeout(self._stall_s):
                    await self._response.write(payload)
            else:
                await self._response.write(payload)
        except TimeoutError as error:
            raise self._unread() from error
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from error

    async def end(self) -> None:
        """Ends a whole stream; the connection may serve another request. Raises ClientGoneError."""
        try:
            async with asyncio.timeout(self._stall_s):
                await self._response.write_eof()
        except TimeoutError as error:
            raise self._unread() from error
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from error

    async def fail(self, last_words: Sequence[bytes]) -> None:
        """Tells a failure after the status line, and closes: no finish reason and no `[DONE]` follow."""
        self._response.force_close()
        await self.write(last_words)
        await self.end()

    async def _open(self) -> None:
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client closed the connection")
        transport.set_write_buffer_limits(high=_TRANSPORT_BUFFER_BYTES)
        await self._response.prepare(self._request)
        self._is_open = True

    def _can_block(self, payload_bytes: int) -> bool:
        """Whether a write may have to wait for the client; a timer for each that cannot would cost as much as it."""
        transport = self._request.transport
        if transport is None:
            raise ConnectionResetError("the client closed the connection")
        return transport.get_write_buffer_size() + payload_bytes > _TRANSPORT_BUFFER_BYTES // 2

    def _unread(self) -> ClientGoneError:
        transport = self._request.transport
        if transport is not None:
            transport.abort()
        return ClientGoneError(f"the stream was left unread for {self._stall_s:g} s")
