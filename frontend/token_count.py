"""Token counts of Anthropic's and OpenAI's: how many tokens a body's prompt has once it is rendered, exactly.

Asks no engine.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Literal

import msgspec
from aiohttp import web

from frontend.dialects.anthropic import parse_message
from frontend.dialects.base import Generation
from frontend.ignored_fields import ignored_header
from frontend.parts import PARTS
from frontend.reply_form import unread_fields
from frontend.request_body import parsed_body, read_body
from frontend.submission import prompt_length, resolve_model

# Larger bodies are rendered and tokenised in a worker thread.
INLINE_BODY_BYTES: Final = 2_048


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /v1/messages/count_tokens."""

    input_tokens: int


class ResponseTokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /v1/responses/input_tokens."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


async def count_tokens(request: web.Request) -> web.Response:
    """Anthropic's."""
    body = await read_body(request)
    generation = await parsed_body(body, parse_message)
    is_long = len(body) > INLINE_BODY_BYTES
    return await counted(request, generation, is_long, lambda tokens: TokenCount(input_tokens=tokens))


async def counted(
    request: web.Request, generation: Generation, is_long: bool, told: Callable[[int], msgspec.Struct]
) -> web.Response:
    """The count as it is told, also of a prompt over the context, up to four times. Raises RequestError.

    is_long: it is made in a worker thread.
    """
    parts = request.app[PARTS]
    engine = await parts.client.wait_ready(parts.settings.engine_wait_s)
    resolve_model(generation.model, engine.facts, parts.settings.served_model_name, parts.client.adapters)

    def count() -> int:
        return prompt_length(generation, engine.text, engine.facts)

    tokens = await asyncio.to_thread(count) if is_long else count()
    return web.Response(
        body=msgspec.json.encode(told(tokens)),
        headers=ignored_header((*generation.ignored, *unread_fields(generation, engine.text)), parts),
        content_type="application/json",
    )
