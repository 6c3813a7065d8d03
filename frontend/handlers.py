"""The generation routes: from an HTTP request to a reply, streamed or whole, for any dialect.

Owns the order of the steps; fields and frames are the dialect's, tokens the engine's.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from frontend.best_of import likeliest
from frontend.dialects import anthropic, openai_chat, openai_completions
from frontend.dialects.base import Generation, ReplyFacts, ReplyFinished, WholeChoice
from frontend.dialects.dialect import Dialect, Framer, SseEvent
from frontend.echo import PromptEcho, prompt_echoes
from frontend.engine_client import ReadyEngine
from frontend.errors import RequestError
from frontend.ignored_fields import ignored_header
from frontend.parts import PARTS
from frontend.reply import LiveReply
from frontend.reply_form import constrained, reply_form, unread_fields
from frontend.request_body import parsed_body, read_body
from frontend.request_log import RECORD, RequestRecord
from frontend.sampling import check_tokens_left, resolve_sampling
from frontend.silence import Silence
from frontend.snapshots import snapshot_lengths
from frontend.sse import DONE, SseStream, comment, frame
from frontend.submission import (
    SubmitPlan,
    build_submits,
    check_choices,
    check_draft,
    prompt_ids,
    resolve_adapter,
    resolve_model,
    wanted_tokens,
)
from frontend.text.structure import ReplyForm
from protocol.sampling import Sampling

log = logging.getLogger(__name__)

# Larger bodies are rendered and tokenised in a worker thread: 2k characters take about 1 ms.
_INLINE_BODY_BYTES: Final = 2_048
# Longer replies, and those with log-probabilities, are put together in one: 1k tokens take about 3 ms.
_INLINE_REPLY_TOKENS: Final = 1_024

CHAT: Final = openai_chat.CHAT
COMPLETIONS: Final = openai_completions.COMPLETIONS
MESSAGES: Final = anthropic.ANTHROPIC


@dataclass(frozen=True, slots=True)
class Spoken:
    """A request in the dialect that answers it. keep: as of RequestRecord.

    is_long: also a small body may go on from a long conversation.
    """

    dialect: Dialect
    generation: Generation
    keep: Callable[[msgspec.Struct], Awaitable[msgspec.Struct]] | None = None
    is_long: bool = False


# Of a request and its body. Raises RequestError.
Speaker = Callable[[web.Request, bytes], Awaitable[Spoken]]


def generation_handler(dialect: Dialect) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The POST handler of a dialect that needs nothing but the body."""

    async def speak(request: web.Request, body: bytes) -> Spoken:
        del request
        return Spoken(dialect, await parsed_body(body, dialect.parse))

    return speaking_handler(speak)


def speaking_handler(speak: Speaker) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The POST handler of requests that are read by `speak`."""

    async def handle(request: web.Request) -> web.StreamResponse:
        request.app[PARTS].requests_total += 1
        body = await read_body(request)
        spoken = await speak(request, body)
        return await _generate(request, replace(spoken, is_long=spoken.is_long or len(body) > _INLINE_BODY_BYTES))

    return handle


async def _generate(request: web.Request, spoken: Spoken) -> web.StreamResponse:
    parts, dialect, generation = request.app[PARTS], spoken.dialect, spoken.generation
    engine = await parts.client.wait_ready(parts.settings.engine_wait_s)
    headers = ignored_header((*generation.ignored, *unread_fields(generation, engine.text)), parts)
    model = resolve_model(generation.model, engine.facts, parts.settings.served_model_name, parts.client.adapters)
    generation = replace(generation, adapter=resolve_adapter(generation, model, engine.facts, parts.client.adapters))
    facts = ReplyFacts(
        id=f"{dialect.id_prefix}{secrets.token_hex(12)}",
        model=model,
        created=int(time.time()),
        logprobs=generation.logprobs,
        fingerprint=engine.facts.fingerprint,
    )
    request[RECORD].reply_id = facts.id
    request[RECORD].keep = spoken.keep
    reply = await _live_reply(request, engine, replace(spoken, generation=generation), facts.id)
    try:
        facts = replace(facts, prompt_tokens=reply.usage.prompt_tokens)
        reply.start()
        if generation.is_stream:
            sse = SseStream(request, headers, parts.settings.stall_s)
            request[RECORD].sse = sse
            framer = request[RECORD].framer = dialect.framer(facts, generation)
            await _stream(_Streaming(request[RECORD], reply, sse, spoken, framer), parts.settings.keepalive_s)
            return sse.response
        choices = likeliest(await _collected(request[RECORD], reply), generation)
        made = partial(dialect.whole, facts, generation, choices, reply.usage)
        whole = await _whole(spoken, made, reply.usage.completion_tokens)
        return web.Response(body=whole, headers=headers, content_type="application/json")
    except RequestError as error:
        raise _in_clients_words(error, generation) from error
    finally:
        reply.close()
        request[RECORD].usage = reply.usage


def _in_clients_words(error: RequestError, generation: Generation) -> RequestError:
    """The engine knows a grammar; the client has sent a field of some other name."""
    if error.param != "grammar" or (generation.constraint is None and generation.tools is None):
        return error
    field = "tools" if generation.constraint is None else generation.constraint.field
    return RequestError(error.code, f"`{field}`: {error.message}", field, error.retry_after_s)


async def _live_reply(request: web.Request, engine: ReadyEngine, spoken: Spoken, reply_id: str) -> LiveReply:
    settings, generation = request.app[PARTS].settings, spoken.generation
    check_choices(generation, engine.facts)
    check_draft(generation, engine.facts)

    def prepared() -> tuple[Sampling, _Prompts]:
        text, facts = engine.text, engine.facts
        sampling = resolve_sampling(generation.sampling, settings.sampling_defaults, facts, text.tokenizer)
        check_tokens_left(generation, sampling, facts)
        prompts = prompt_ids(generation.prompts, text, facts, generation.tools)
        form = reply_form(generation, prompts[0], text)
        echoes = prompt_echoes(generation, prompts, text)
        pairs = zip(generation.prompts, prompts, strict=True) if facts.wants_snapshots else ()
        snapshots = [snapshot_lengths(prompt, ids, generation.tools, text) for prompt, ids in pairs]
        return sampling, _Prompts(constrained(generation, form, text), prompts, echoes, form, snapshots)

    sampling, prompts = await asyncio.to_thread(prepared) if spoken.is_long else prepared()
    deadline_ms = None
    if generation.timeout_s is not None:
        spent_s = time.monotonic() - request[RECORD].started_s
        deadline_ms = max(1, math.ceil((generation.timeout_s - spent_s) * 1000))
    plan = SubmitPlan(
        reply_id=reply_id,
        epoch=engine.session.epoch,
        facts=engine.facts,
        sampling=sampling,
        max_tokens=wanted_tokens(generation, settings.max_tokens),
        deadline_ms=deadline_ms,
        snapshots=prompts.snapshots,
    )
    return LiveReply(
        engine, build_submits(prompts.generation, prompts.ids, plan), generation, prompts.echoes, prompts.form
    )


@dataclass(frozen=True, slots=True)
class _Prompts:
    generation: Generation
    ids: list[list[int]]
    echoes: list[PromptEcho]
    form: ReplyForm
    snapshots: list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Streaming:
    record: RequestRecord
    reply: LiveReply
    sse: SseStream
    spoken: Spoken
    framer: Framer


async def _stream(streaming: _Streaming, keepalive_s: float) -> None:
    """One write per turn of news; the status line goes out with the first, so an early failure keeps its status."""
    reply, sse, framer = streaming.reply, streaming.sse, streaming.framer
    with Silence(keepalive_s, reply.nudge) as silence:
        while not reply.is_finished:
            events = await reply.next_events()
            sent = [made for event in events for made in framer.frames(event)]
            if reply.is_finished:
                sent = await _kept(streaming, sent)
            frames = [frame(made.content, made.name) for made in sent]
            if events:
                streaming.record.note_first_token()
            else:
                sign = framer.keepalive()
                frames.append(comment(reply.waiting_for) if sign is None else frame(sign.content, sign.name))
            if reply.is_finished and streaming.spoken.dialect.has_done:
                frames.append(DONE)
            if frames:
                await sse.write(frames)
                silence.broken()
    await sse.end()


async def _kept(streaming: _Streaming, sent: list[SseEvent]) -> list[SseEvent]:
    """Keeps what the stream's last event holds; the others need not wait for it."""
    if streaming.record.keep is None:
        return sent
    *others, last = sent
    if others:
        await streaming.sse.write([frame(made.content, made.name) for made in others])
    return [await streaming.record.kept(last)]


async def _collected(record: RequestRecord, reply: LiveReply) -> list[WholeChoice]:
    """All choices to their ends, in order."""
    choices: dict[int, WholeChoice] = {}
    while not reply.is_finished:
        for event in await reply.next_events():
            record.note_first_token()
            if isinstance(event, ReplyFinished):
                continue
            if event.choice not in choices:
                choices[event.choice] = WholeChoice(event.choice)
            choices[event.choice].add(event)
    return [choices[choice] for choice in sorted(choices)]


async def _whole(spoken: Spoken, made: Callable[[], msgspec.Struct], tokens: int) -> bytes:
    """The body of a whole reply of so many tokens."""
    is_short = spoken.generation.logprobs is None and tokens <= _INLINE_REPLY_TOKENS
    whole = made() if is_short else await asyncio.to_thread(made)
    if spoken.keep is not None:
        whole = await spoken.keep(whole)
    return msgspec.json.encode(whole) if is_short else await asyncio.to_thread(msgspec.json.encode, whole)
