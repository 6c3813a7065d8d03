"""The routes of the Responses API: making a response that may go on from a stored one, and the stored ones themselves.

Owns what is stored of a request, and when; fields, items and frames are the dialect's.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
from aiohttp import web

from frontend.dialects.base import Generation
from frontend.dialects.dialect import Dialect
from frontend.dialects.openai_responses import responses_dialect
from frontend.dialects.openai_responses_events import ResponseCompleted, ResponseFailed, ResponseIncomplete
from frontend.dialects.openai_responses_frames import AskedResponse, asked_of
from frontend.dialects.openai_responses_items import Recalled
from frontend.dialects.openai_responses_objects import ResponseBody, ResponseStatus
from frontend.dialects.openai_responses_stored import input_items, named_items, referenced_ids
from frontend.dialects.values import as_object, read_text, wrong
from frontend.errors import HttpErrorCode, RequestError
from frontend.handlers import Spoken, speaking_handler
from frontend.parts import PARTS
from frontend.request_body import parsed_body, read_body
from frontend.response_shelf import SHELF, ResponseShelf
from frontend.response_store import ConversationTooLongError, ResponseMissingError, ResponseStore, StoredResponse
from frontend.token_count import INLINE_BODY_BYTES, ResponseTokenCount, counted
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)

# Larger bodies are read in a worker thread.
_INLINE_BYTES: Final = 16_384
_MAX_LISTED: Final = 100
_LISTED: Final = 20


class DeletedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion is answered with."""

    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of items."""

    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class _Read(NamedTuple):
    """A body, and the request that it is. has_more: it goes on from what was stored."""

    content: object
    dialect: Dialect
    generation: Generation
    has_more: bool


async def _read(request: web.Request, body: bytes) -> _Read:
    content, before = await parsed_body(body, _opened)
    recalled = await _recalled(before, request.app[SHELF], request.app[PARTS].settings.max_body_bytes)
    dialect = responses_dialect(recalled)
    has_more = bool(recalled.history or recalled.references)
    is_small = len(body) <= _INLINE_BYTES and not has_more
    generation = dialect.parse(content) if is_small else await asyncio.to_thread(dialect.parse, content)
    return _Read(content, dialect, generation, has_more)


async def _speak(request: web.Request, body: bytes) -> Spoken:
    shelf = request.app[SHELF]
    content, dialect, generation, has_more = await _read(request, body)
    asked = asked_of(generation)
    if asked.blank.store and not shelf.is_open:
        is_explicit = as_object(content, "body").get("store") is True
        return Spoken(dialect, _without_store(generation, asked, is_explicit=is_explicit), is_long=has_more)
    keep = partial(_keep, shelf, asked) if asked.blank.store else None
    return Spoken(dialect, generation, keep, is_long=has_more)


def _without_store(generation: Generation, asked: AskedResponse, *, is_explicit: bool) -> Generation:
    """The reply says that it is not stored; a wish for it is named like one that is unknown."""
    blank = msgspec.structs.replace(asked.blank, store=False)
    ignored = (*generation.ignored, "store") if is_explicit else generation.ignored
    return replace(generation, kept=msgspec.structs.replace(asked, blank=blank), ignored=ignored)


create: Final = speaking_handler(_speak)


async def count_input(request: web.Request) -> web.Response:
    """How many tokens a response to the same body would read. Raises RequestError."""
    body = await read_body(request)
    read = await _read(request, body)
    is_long = read.has_more or len(body) > INLINE_BODY_BYTES
    return await counted(request, read.generation, is_long, lambda tokens: ResponseTokenCount(input_tokens=tokens))


async def compact(request: web.Request) -> web.Response:
    """What OpenAI's models are trained to write for themselves alone. Raises RequestError."""
    del request
    raise RequestError(
        ErrorCode.UNSUPPORTED,
        "this server does not compact conversations: ask the model for a summary in a request of its own, and go on "
        "from that; Codex does so for a provider whose name in config.toml is not OpenAI",
    )


async def retrieve(request: web.Request) -> web.Response:
    """A stored response. Raises RequestError."""
    if request.query.get("stream", "false") != "false":
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            "`stream` with the value true is not supported here: only background responses are streamed later, "
            "and there are none",
            "stream",
        )
    found = await _found(request)
    return web.Response(body=found.body, content_type="application/json")


async def delete(request: web.Request) -> web.Response:
    """Forgets a response. Raises RequestError."""
    id_ = request.match_info["id"]
    if not await request.app[SHELF].call(lambda store: store.delete(id_)):
        raise _not_found(id_)
    return _json(DeletedResponse(id=id_))


async def cancel(request: web.Request) -> web.Response:
    """Nothing runs in the background here. Raises RequestError."""
    found = await _found(request)
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"the response '{found.id}' was not made in the background and is over: there is nothing to cancel; "
        "a request that still runs ends when its connection is closed",
    )


async def list_input_items(request: web.Request) -> web.Response:
    """All items that a response was made from, newest first unless asked otherwise. Raises RequestError."""
    page = _page(request)
    found = await _found(request)
    chain = await _chain(request.app[SHELF], found.id, request.app[PARTS].settings.max_body_bytes)
    return await asyncio.to_thread(lambda: _json(_listed(_items_of(chain, has_last_output=False), page)))


class _Page(msgspec.Struct, frozen=True):
    limit: int
    is_ascending: bool
    after: str | None


def _page(request: web.Request) -> _Page:
    limit, order = request.query.get("limit", str(_LISTED)), request.query.get("order", "desc")
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _MAX_LISTED):
        raise wrong("limit", limit, f"an integer from 1 to {_MAX_LISTED}")
    if order not in ("asc", "desc"):
        raise wrong("order", order, "asc or desc")
    return _Page(int(limit), order == "asc", request.query.get("after"))


def _listed(items: list[dict[str, Any]], page: _Page) -> ItemList:
    ordered = items if page.is_ascending else items[::-1]
    start = 0
    if page.after is not None:
        places = [index for index, item in enumerate(ordered) if item["id"] == page.after]
        if not places:
            raise wrong("after", page.after, "the id of an item of this response")
        start = places[0] + 1
    data = ordered[start : start + page.limit]
    return ItemList(
        data=data,
        first_id=data[0]["id"] if data else None,
        last_id=data[-1]["id"] if data else None,
        has_more=len(ordered) > start + page.limit,
    )


class _Before(NamedTuple):
    """What a body refers to: the response that it goes on from, and the ids of items."""

    previous: str | None
    ids: list[str]


class _Opened(NamedTuple):
    content: object
    before: _Before


def _opened(content: object) -> _Opened:
    """Of a decoded body. Raises RequestError."""
    fields = as_object(content, "body")
    previous, value = read_text(fields, "previous_response_id"), fields.get("input")
    return _Opened(content, _Before(previous, [] if value is None else referenced_ids(input_items(value))))


async def _recalled(before: _Before, shelf: ResponseShelf, most_bytes: int) -> Recalled:
    """What a request goes on from, and the items that it names. Raises RequestError."""
    previous, ids = before
    if previous is None and not ids:
        return Recalled()
    if not shelf.is_open:
        name = "input" if previous is None else "previous_response_id"
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{name}` needs stored responses, and this server stores none (--response-store-bytes 0): "
            "send the whole conversation as input",
            name,
        )
    history: list[dict[str, Any]] = []
    if previous is not None:
        chain = await _chain(shelf, previous, most_bytes)
        history = await asyncio.to_thread(_history, chain)
    references = await shelf.call(lambda store: _referenced(store, ids)) if ids else {}
    return Recalled(tuple(history), references)


async def _chain(shelf: ResponseShelf, id_: str, most_bytes: int) -> list[StoredResponse]:
    try:
        return await shelf.call(lambda store: store.chain(id_, most_bytes))
    except ResponseMissingError as error:
        gone = "" if error.id == id_ else f", for '{error.id}', from which it goes on, is not stored any more"
        raise RequestError(
            HttpErrorCode.PREVIOUS_RESPONSE_NOT_FOUND,
            f"Previous response with id '{id_}' not found{gone}. It was never stored, was deleted, or gave way to "
            "newer ones: send the whole conversation as input.",
            "previous_response_id",
        ) from error
    except ConversationTooLongError as error:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the conversation up to '{id_}' has more than {most_bytes} bytes: go on from a shorter one",
            "previous_response_id",
        ) from error


def _history(chain: Sequence[StoredResponse]) -> list[dict[str, Any]]:
    """The conversation to go on in. Raises RequestError where the last response has failed: its end is not there."""
    last = chain[-1]
    if msgspec.json.decode(last.body, type=_StoredOutput).status == "failed":
        before = "without `previous_response_id`" if last.previous is None else f"on from '{last.previous}'"
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the response '{last.id}' failed before its end: send its input again, {before}",
            "previous_response_id",
        )
    return _items_of(chain, has_last_output=True)


def _items_of(chain: Sequence[StoredResponse], *, has_last_output: bool) -> list[dict[str, Any]]:
    """The conversation, oldest item first."""
    items: list[dict[str, Any]] = []
    for index, stored in enumerate(chain):
        items += msgspec.json.decode(stored.items, type=list[dict[str, Any]])
        if has_last_output or index < len(chain) - 1:
            items += _output_of(stored)
    return items


def _output_of(stored: StoredResponse) -> list[dict[str, Any]]:
    return msgspec.json.decode(stored.body, type=_StoredOutput).output


class _StoredOutput(msgspec.Struct, frozen=True):
    status: ResponseStatus
    output: list[dict[str, Any]]


def _referenced(store: ResponseStore, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Those that are stored, by id."""
    references: dict[str, dict[str, Any]] = {}
    for id_ in dict.fromkeys(ids):
        stored = store.find_item(id_)
        if stored is not None:
            items = _items_of([stored], has_last_output=True)
            references[id_] = next(item for item in items if item.get("id") == id_)
    return references


async def _found(request: web.Request) -> StoredResponse:
    id_ = request.match_info["id"]
    found = await request.app[SHELF].call(lambda store: store.find(id_))
    if found is None:
        raise _not_found(id_)
    return found


def _not_found(id_: str) -> RequestError:
    return RequestError(HttpErrorCode.NOT_FOUND, f"Response with id '{id_}' not found.", "response_id")


async def _keep(shelf: ResponseShelf, asked: AskedResponse, last: msgspec.Struct) -> msgspec.Struct:
    """Stores the response; one that cannot be stored says so, and reaches its client all the same."""
    match last:
        case (
            ResponseCompleted(response=response)
            | ResponseIncomplete(response=response)
            | ResponseFailed(response=response)
        ):
            kept = await _stored(shelf, response, asked)
            return msgspec.structs.replace(last, response=kept)
        case ResponseBody():
            return await _stored(shelf, last, asked)
        case _:
            raise AssertionError(f"a response ends in {type(last).__name__}")


async def _stored(shelf: ResponseShelf, response: ResponseBody, asked: AskedResponse) -> ResponseBody:
    def save(store: ResponseStore) -> None:
        items = named_items(asked.items, response.id)
        ids = [item["id"] for item in items if isinstance(item["id"], str)] + [item.id for item in response.output]
        encoded = msgspec.json.encode(response), msgspec.json.encode(items)
        store.save(StoredResponse(response.id, response.previous_response_id, *encoded), ids)

    try:
        await shelf.call(save)
    except RequestError as error:
        log.warning("response.not_stored", extra={"reply_id": response.id, "reason": error.message})
        return msgspec.structs.replace(response, store=False)
    return response


def _json(body: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
