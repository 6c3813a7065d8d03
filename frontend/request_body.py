"""A request's JSON body: its arrival, its size and depth, its decoding. Knows no field of it."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from frontend.errors import HttpErrorCode, RequestError
from protocol.errors import ErrorCode

MAX_JSON_DEPTH: Final = 128
# One call decodes a body and holds the interpreter lock meanwhile: 16 MB of text for some 20 ms, but of empty objects
# for half a second. A message has four tokens at least, so that more of them fit no context.
MAX_JSON_CONTAINERS: Final = 200_000
_BODY_LIMIT_S: Final = 30.0
# Larger bodies are parsed in a worker thread: 16 kB of messages of a letter each take about 4 ms.
_INLINE_PARSE_BYTES: Final = 16_384
_NO_MARKS: Final = bytes(code for code in range(256) if code not in b'[]{}"')
_STEPS: Final = {code: 1 if code in b"[{" else -1 for code in b"[]{}"}
# The interpreter lock changes hands between two pieces.
_MARKS_PER_PIECE: Final = 65_536
_PIECE_BYTES: Final = 1_048_576

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
    """The JSON value. Raises RequestError where it is none, nested too deeply, or of too many parts."""
    shape = json_shape(body)
    if shape.depth > MAX_JSON_DEPTH:
        raise RequestError(
            HttpErrorCode.BODY_TOO_LARGE, f"the request body is nested deeper than the {MAX_JSON_DEPTH} levels allowed"
        )
    if shape.containers > MAX_JSON_CONTAINERS:
        raise RequestError(
            HttpErrorCode.BODY_TOO_LARGE,
            f"the request body has {shape.containers} arrays and objects, at most {MAX_JSON_CONTAINERS} are taken",
        )
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"the request body is not valid JSON: {error}") from error


class JsonShape(NamedTuple):
    """depth: how deep arrays and objects lie in each other. containers: how many there are."""

    depth: int
    containers: int


def _marks(body: bytes) -> Iterator[bytes]:
    """Brackets, and the quotes of texts that have one: escapes are out of the way, which would hide a text's end."""
    start = 0
    while start < len(body):
        stop = start + _PIECE_BYTES
        # Never between the two characters of an escape.
        while body[stop - 1 : stop] == b"\\":
            stop += 1
        piece = body[start:stop]
        yield piece.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARKS).replace(b'""', b"")
        start = stop


def json_shape(body: bytes) -> JsonShape:
    """Of a body that is not decoded; of few brackets only an upper bound."""
    most = body.count(b"[") + body.count(b"{")
    if most <= MAX_JSON_DEPTH:
        return JsonShape(most, most)
    marks = b"".join(_marks(body))
    depth = deepest = containers = 0
    is_in_text = False
    for start in range(0, len(marks), _MARKS_PER_PIECE):
        parts = marks[start : start + _MARKS_PER_PIECE].split(b'"')
        brackets = b"".join(parts[is_in_text::2])
        is_in_text ^= len(parts) % 2 == 0
        depths = list(itertools.accumulate(map(_STEPS.__getitem__, brackets), initial=depth))
        deepest, depth = max(deepest, *depths), depths[-1]
        containers += brackets.count(b"[") + brackets.count(b"{")
    return JsonShape(deepest, containers)
