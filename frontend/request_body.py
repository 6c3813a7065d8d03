"""A request's JSON body: its arrival, its size and depth, its decoding. Knows no field of it."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from frontend.errors import HttpErrorCode, RequestError
from protocol.errors import ErrorCode

MAX_JSON_DEPTH: Final = 128
_BODY_LIMIT_S: Final = 30.0
# Larger bodies are parsed in a worker thread: 16 kB of messages of a letter each take about 4 ms.
_INLINE_PARSE_BYTES: Final = 16_384
_NO_MARKS: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_STEPS: Final = {code: 1 if code in b"[{" else -1 for code in b"[]{}"}
# The interpreter lock changes hands between two pieces.
_MARKS_PER_PIECE: Final = 65_536

Parsed = TypeVar("Parsed")


async def read_body(request: web.Request) -> bytes:
    """Raises RequestError for a body that trickles or cannot be decoded, HTTPRequestEntityTooLarge over the limit."""
    try:
        async with asyncio.timeout(_BODY_LIMIT_S):
            return await request.read()
    except TimeoutError as error:
        raise RequestError(
            ErrorCode.DEADLINE_EXCEEDED, f"the request body did not arrive within {_BODY_LIMIT_S:.0f} s"
        ) from error
    except web.RequestPayloadError as error:
        why = " ".join(str(error).partition("message:")[2].split())
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the request body cannot be read: {why}") from error


async def parsed_body(body: bytes, parse: Callable[[object], Parsed]) -> Parsed:
    """What parse makes of the decoded JSON. Raises RequestError."""
    if len(body) <= _INLINE_PARSE_BYTES:
        return parse(decoded(body))
    return await asyncio.to_thread(lambda: parse(decoded(body)))


def decoded(body: bytes) -> object:
    """The JSON value. Raises RequestError where it is none, or nested too deeply."""
    if json_depth(body) > MAX_JSON_DEPTH:
        raise RequestError(
            HttpErrorCode.BODY_TOO_LARGE, f"the request body is nested deeper than the {MAX_JSON_DEPTH} levels allowed"
        )
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the request body is not valid JSON: {error}") from error


def json_depth(body: bytes) -> int:
    """How deep arrays and objects lie in each other, without decoding; of few brackets only an upper bound."""
    most = body.count(b"[") + body.count(b"{")
    if most <= MAX_JSON_DEPTH:
        return most
    # Texts are found by their quotes, once escapes are out of the way; one without a bracket is no more than a pair.
    marks = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS).replace(b'""', b"")
    depth = deepest = 0
    is_in_text = False
    for start in range(0, len(marks), _MARKS_PER_PIECE):
        parts = marks[start : start + _MARKS_PER_PIECE].split(b'"')
        brackets = b"".join(parts[is_in_text::2])
        is_in_text ^= len(parts) % 2 == 0
        depths = list(itertools.accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        deepest, depth = max(deepest, *depths), depths[-1]
    return deepest
