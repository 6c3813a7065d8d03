"""The models that are served, as OpenAI's clients and Anthropic's list them: one body for both.

Owns its shapes and pages; which names are served is submission's to say.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from aiohttp import web

from frontend.errors import RequestError
from frontend.parts import PARTS, FrontendParts
from frontend.submission import resolve_model, served_models
from protocol.errors import ErrorCode
from protocol.messages import ModelFacts, ParserNames

_MOST_LISTED: Final = 1_000


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model. context_length, max_model_len: in tokens, under OpenRouter's and vLLM's name.

    They are less than the model's own model_context_length where kv_budget_bytes of memory hold no longer request.

    parent: of an adapter, the model that it is mounted on, as vLLM has it. From `type` on, Anthropic's fields.
    tool_parser, reasoning_parser: Convoy's own, the formats that replies are read in; None for none, or not yet known.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "convoy"
    parent: str | None
    context_length: int
    max_model_len: int
    model_context_length: int
    kv_budget_bytes: int
    tool_parser: str | None
    reasoning_parser: str | None
    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int
    max_tokens: int


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /v1/models; from has_more on, Anthropic's fields."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]
    has_more: bool
    first_id: str | None
    last_id: str | None


async def list_models(request: web.Request) -> web.Response:
    """Every name this frontend serves its model under. Raises RequestError for a page that cannot be."""
    parts = request.app[PARTS]
    facts = await _facts(parts)
    names = served_models(facts, parts.settings.served_model_name, parts.client.adapters)
    page, has_more = _page(names, request.query)
    entries = [_entry(name, facts, parts) for name in page]
    ends = (page[0], page[-1]) if page else (None, None)
    return _json(ModelList(data=entries, has_more=has_more, first_id=ends[0], last_id=ends[1]))


async def show_model(request: web.Request) -> web.Response:
    """One name. Raises RequestError(MODEL_NOT_FOUND)."""
    parts = request.app[PARTS]
    facts = await _facts(parts)
    name = resolve_model(request.match_info["id"], facts, parts.settings.served_model_name, parts.client.adapters)
    return _json(_entry(name, facts, parts))


def _page(names: Sequence[str], query: Mapping[str, str]) -> tuple[Sequence[str], bool]:
    """Anthropic's pages: `limit` names after `after_id` or before `before_id`; all where nothing is asked."""
    limit_text = query.get("limit", str(_MOST_LISTED))
    if not (limit_text.isascii() and limit_text.isdecimal() and 1 <= int(limit_text[:9]) <= _MOST_LISTED):
        raise _wrong("limit", limit_text, f"a number from 1 to {_MOST_LISTED}")
    limit = int(limit_text)
    after, before = query.get("after_id"), query.get("before_id")
    for name, value in (("after_id", after), ("before_id", before)):
        if value is not None and value not in names:
            raise _wrong(name, value, "a model in the list")
    if before is not None:
        rest = names[: names.index(before)]
        return rest[-limit:], len(rest) > limit
    rest = names if after is None else names[names.index(after) + 1 :]
    return rest[:limit], len(rest) > limit


def _wrong(name: str, value: str, expected: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, f"`{name}` must be {expected}, not `{value[:80]}`", name)


async def _facts(parts: FrontendParts) -> ModelFacts:
    facts = parts.client.facts
    return facts if facts is not None else (await parts.client.wait_ready(parts.settings.engine_wait_s)).facts


def _entry(name: str, facts: ModelFacts, parts: FrontendParts) -> ModelEntry:
    parsers = ParserNames() if parts.client.ready is None else parts.client.ready.text.parsers
    created = facts.created or parts.created
    is_adapter = name in parts.client.adapters and name not in (facts.id, *facts.aliases)
    return ModelEntry(
        id=name,
        created=created,
        parent=facts.id if is_adapter else None,
        context_length=facts.context_length,
        max_model_len=facts.context_length,
        model_context_length=facts.model_context_length or facts.context_length,
        kv_budget_bytes=facts.kv_budget_bytes,
        tool_parser=parsers.tools,
        reasoning_parser=parsers.reasoning,
        display_name=name,
        created_at=datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        max_input_tokens=facts.context_length,
        max_tokens=facts.context_length,
    )


def _json(body: msgspec.Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
