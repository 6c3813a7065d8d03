"""/tokenize, /detokenize and /apply-template: the model's own tokenizer and chat template, without a reply.

Bodies as vLLM's (`prompt` or `messages`, `tokens`) and llama.cpp's (`content`). Asks the engine nothing.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from frontend.dialects.base import ChatPrompt, Generation
from frontend.dialects.fields import FieldTable, Honoured, NeutralOnly, check_fields
from frontend.dialects.openai_chat import parse_chat
from frontend.dialects.openai_sampling import read_token_ids
from frontend.dialects.values import as_body, as_text, read_bool, read_text
from frontend.engine_client import ReadyEngine
from frontend.errors import RequestError
from frontend.ignored_fields import ignored_header
from frontend.parts import PARTS
from frontend.reply_form import rendered, unread_fields
from frontend.request_body import parsed_body, read_body
from frontend.submission import resolve_model
from protocol.errors import ErrorCode

# A million characters take about a second of one thread.
MAX_CHARACTERS: Final = 1_000_000
MAX_TOKENS: Final = 1_000_000
# Longer ones are worked on in a worker thread: 2k characters take about 1 ms.
_INLINE_LENGTH: Final = 2_048

TOKENIZE_FIELDS: Final[FieldTable] = {
    "model": Honoured("null, or one of the served names"),
    "prompt": Honoured("vLLM's: the text"),
    "content": Honoured("llama.cpp's: the text"),
    "add_special_tokens": Honoured("vLLM's: with the tokens that begin a text; true when left out"),
    "add_special": Honoured("llama.cpp's: the same; false when left out"),
    "return_token_strs": Honoured("vLLM's: each token as the vocabulary spells it"),
    "with_pieces": Honoured("llama.cpp's: each token with its text, or its bytes where they are no text"),
    "parse_special": NeutralOnly((True,), "special tokens in the text are always read as such"),
}
DETOKENIZE_FIELDS: Final[FieldTable] = {
    "model": Honoured("null, or one of the served names"),
    "tokens": Honoured("an array of token ids"),
}
# Beside those of a chat.
TOKENIZE_CHAT_FIELDS: Final = ("return_token_strs",)

Found = TypeVar("Found")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A token of llama.cpp's `with_pieces`."""

    id: int
    piece: str | list[int]


class TokenizedText(msgspec.Struct, frozen=True, kw_only=True):
    """vLLM's reply; max_model_len: the context's length in tokens."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class TokenizedContent(msgspec.Struct, frozen=True, kw_only=True):
    """llama.cpp's reply."""

    tokens: list[int] | list[Piece]


class Detokenized(msgspec.Struct, frozen=True, kw_only=True):
    """The text, once under vLLM's name and once under llama.cpp's."""

    prompt: str
    content: str


class RenderedChat(msgspec.Struct, frozen=True, kw_only=True):
    """llama.cpp's reply: what the chat template makes of the messages."""

    prompt: str


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed body. length: of what is worked on, in characters or tokens. chat: what it came as, if it did."""

    model: str | None
    ignored: tuple[str, ...]
    length: int
    work: Callable[[ReadyEngine], msgspec.Struct]
    chat: Generation | None = None


async def tokenize(request: web.Request) -> web.Response:
    """Text or messages to token ids."""
    return await _answered(request, _parse_tokenize)


async def detokenize(request: web.Request) -> web.Response:
    """Token ids to text."""
    return await _answered(request, _parse_detokenize)


async def apply_template(request: web.Request) -> web.Response:
    """Messages to the prompt's text, with everything that a chat's fields say about it."""
    return await _answered(request, _parse_chat_text)


async def _answered(request: web.Request, parse: Callable[[object], _Job]) -> web.Response:
    parts = request.app[PARTS]
    body = await read_body(request)
    job = await parsed_body(body, parse)
    engine = await parts.client.wait_ready(parts.settings.engine_wait_s)
    resolve_model(job.model, engine.facts, parts.settings.served_model_name, parts.client.adapters)

    def answer() -> bytes:
        return msgspec.json.encode(job.work(engine))

    unread = () if job.chat is None else unread_fields(job.chat, engine.text)
    headers = ignored_header((*job.ignored, *unread), parts)
    content = answer() if job.length <= _INLINE_LENGTH else await asyncio.to_thread(answer)
    return web.Response(body=content, headers=headers, content_type="application/json")


def _parse_tokenize(body: object) -> _Job:
    fields = as_body(body)
    given = [name for name in ("prompt", "content", "messages") if fields.get(name) is not None]
    if len(given) != 1:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, "send one of `prompt`, `content` (both text) and `messages`", "prompt"
        )
    if given == ["messages"]:
        return _parse_chat_tokens(fields)
    ignored = check_fields(fields, TOKENIZE_FIELDS)
    text = _text(fields, given[0])
    model = read_text(fields, "model")
    if given == ["prompt"]:
        has_special = read_bool(fields, "add_special_tokens", default=True)
        has_strings = read_bool(fields, "return_token_strs", default=False)
        work = _text_work(lambda engine: _ids(engine, text, has_special=has_special), has_strings)
    else:
        has_special = read_bool(fields, "add_special", default=False)
        has_pieces = read_bool(fields, "with_pieces", default=False)
        work = _content_work(text, has_special, has_pieces)
    return _Job(model=model, ignored=ignored, length=len(text), work=work)


def _parse_chat_tokens(fields: dict[str, object]) -> _Job:
    """vLLM's second form: a chat, of which it wants the prompt's ids."""
    has_strings = read_bool(fields, "return_token_strs", default=False)
    chat = {name: value for name, value in fields.items() if name not in TOKENIZE_CHAT_FIELDS}

    def work_of(text_of: Callable[[ReadyEngine], str]) -> Callable[[ReadyEngine], TokenizedText]:
        return _text_work(lambda engine: engine.text.encode_chat(_bounded(text_of(engine), "messages")), has_strings)

    return _chat_job(chat, work_of)


def _parse_chat_text(body: object) -> _Job:
    return _chat_job(as_body(body), lambda text_of: lambda engine: RenderedChat(prompt=text_of(engine)))


def _chat_job(
    chat: Mapping[str, object],
    work_of: Callable[[Callable[[ReadyEngine], str]], Callable[[ReadyEngine], msgspec.Struct]],
) -> _Job:
    """work_of: from what renders the conversation to what is made of it."""
    generation = parse_chat(chat)
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    work = work_of(lambda engine: rendered(prompt, generation.tools, engine.text))
    # A template may make much of little.
    length = _INLINE_LENGTH + 1
    return _Job(model=generation.model, ignored=generation.ignored, length=length, work=work, chat=generation)


def _parse_detokenize(body: object) -> _Job:
    fields = as_body(body)
    ignored = check_fields(fields, DETOKENIZE_FIELDS)
    if fields.get("tokens") is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "`tokens` is missing: send an array of token ids", "tokens")
    ids = list(read_token_ids(fields, "tokens", MAX_TOKENS))
    return _Job(
        model=read_text(fields, "model"),
        ignored=ignored,
        length=len(ids),
        work=lambda engine: _detokenized(engine, ids),
    )


def _detokenized(engine: ReadyEngine, ids: list[int]) -> Detokenized:
    size = engine.facts.vocabulary_size
    unknown = next((id_ for id_ in ids if id_ >= size), None)
    if unknown is not None:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"token id {unknown} is outside the vocabulary of {size} tokens", "tokens"
        )
    text = engine.text.tokenizer.decode(ids, skip_special_tokens=False)
    return Detokenized(prompt=text, content=text)


def _text_work(ids_of: Callable[[ReadyEngine], list[int]], has_strings: bool) -> Callable[[ReadyEngine], TokenizedText]:
    def work(engine: ReadyEngine) -> TokenizedText:
        ids = ids_of(engine)
        strings = [engine.text.tokenizer.token_text(id_) or "" for id_ in ids] if has_strings else None
        return TokenizedText(count=len(ids), max_model_len=engine.facts.context_length, tokens=ids, token_strs=strings)

    return work


def _content_work(text: str, has_special: bool, has_pieces: bool) -> Callable[[ReadyEngine], TokenizedContent]:
    def work(engine: ReadyEngine) -> TokenizedContent:
        ids = _ids(engine, text, has_special=has_special)
        if not has_pieces:
            return TokenizedContent(tokens=ids)
        return TokenizedContent(tokens=[Piece(id=id_, piece=_piece(engine.text.token_bytes.of(id_))) for id_ in ids])

    return work


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def _ids(engine: ReadyEngine, text: str, *, has_special: bool) -> list[int]:
    tokenizer = engine.text.tokenizer
    return tokenizer.encode_text(text) if has_special else tokenizer.encode_rendered(text)


def _text(fields: Mapping[str, object], name: str) -> str:
    return _bounded(as_text(fields[name], name), name)


def _bounded(text: str, name: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`{name}` has {len(text)} characters, at most {MAX_CHARACTERS} are taken", name
        )
    return text
