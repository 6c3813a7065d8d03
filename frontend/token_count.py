"""Anthropic's token count: how many tokens a body's prompt has once it is rendered, exactly. Asks no engine."""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from frontend.dialects.anthropic import parse_message
from frontend.ignored_fields import ignored_header
from frontend.parts import PARTS
from frontend.reply_form import unread_fields
from frontend.request_body import parsed_body, read_body
from frontend.submission import prompt_length, resolve_model

# Larger bodies are rendered and tokenised in a worker thread.
_INLINE_BODY_BYTES: Final = 2_048


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /v1/messages/count_tokens."""

    input_tokens: int


async def count_tokens(request: web.Request) -> web.Response:
    """The count, also of a prompt over the context, up to four times."""
    parts = request.app[PARTS]
    body = await read_body(request)
    generation = await parsed_body(body, parse_message)
    engine = await parts.client.wait_ready(parts.settings.engine_wait_s)
    resolve_model(generation.model, engine.facts, parts.settings.served_model_name, parts.client.adapters)

    def count() -> int:
        return prompt_length(generation, engine.text, engine.facts)

    tokens = count() if len(body) <= _INLINE_BODY_BYTES else await asyncio.to_thread(count)
    reply = msgspec.json.encode(TokenCount(input_tokens=tokens))
    return web.Response(
        body=reply,
        headers=ignored_header((*generation.ignored, *unread_fields(generation, engine.text)), parts),
        content_type="application/json",
    )
