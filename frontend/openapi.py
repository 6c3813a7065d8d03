"""/openapi.json: an OpenAPI 3.1 document of what is routed, made from the routes, the field tables and the structs.

Owns one entry per route, in OPERATIONS; everything it says of a field is the dialect's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from frontend import admin, models, responses, tokenizing
from frontend.dialects.anthropic import ANTHROPIC_FIELDS
from frontend.dialects.anthropic_bodies import MessageBody
from frontend.dialects.anthropic_errors import MessageErrorBody
from frontend.dialects.fields import FieldTable
from frontend.dialects.openai_chat import CHAT_FIELDS, ChatReply
from frontend.dialects.openai_completions import COMPLETION_FIELDS, CompletionReply
from frontend.dialects.openai_responses import RESPONSES_FIELDS
from frontend.dialects.openai_responses_objects import ResponseBody
from frontend.errors import ErrorBody
from frontend.field_schemas import (
    CHAT_SHAPES,
    MESSAGES_SHAPES,
    NO_SHAPES,
    RESPONSES_SHAPES,
    TOKENIZE_SHAPES,
    Schema,
    table_schema,
)
from frontend.token_count import ResponseTokenCount, TokenCount

_REFERENCE: Final = "#/components/schemas/{name}"
_VERSION: Final = "3.1.0"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Operation:
    """About one route. fields, required, shapes: of its body; None for a route without one.

    reply: of a 200 that is JSON; kind: of one that is not. has_stream: it can be an event stream, too.
    """

    summary: str
    reply: type[msgspec.Struct] | None = None
    kind: str | None = None
    fields: FieldTable | None = None
    required: tuple[str, ...] = ()
    error: type[msgspec.Struct] = ErrorBody
    has_stream: bool = False
    shapes: Mapping[str, Schema] = field(default_factory=lambda: NO_SHAPES)


OPERATIONS: Final[Mapping[str, Operation]] = {
    "POST /v1/chat/completions": Operation(
        "A chat's next message",
        ChatReply,
        fields=CHAT_FIELDS,
        required=("messages",),
        has_stream=True,
        shapes=CHAT_SHAPES,
    ),
    "POST /v1/completions": Operation(
        "What follows a text", CompletionReply, fields=COMPLETION_FIELDS, required=("prompt",), has_stream=True
    ),
    "POST /v1/messages": Operation(
        "Anthropic's: a chat's next message",
        MessageBody,
        fields=ANTHROPIC_FIELDS,
        required=("messages",),
        error=MessageErrorBody,
        has_stream=True,
        shapes=MESSAGES_SHAPES,
    ),
    "POST /v1/messages/count_tokens": Operation(
        "Anthropic's: how many tokens a prompt has",
        TokenCount,
        fields=ANTHROPIC_FIELDS,
        required=("messages",),
        error=MessageErrorBody,
        shapes=MESSAGES_SHAPES,
    ),
    "POST /v1/responses": Operation(
        "OpenAI's: a response, which may go on from a stored one",
        ResponseBody,
        fields=RESPONSES_FIELDS,
        has_stream=True,
        shapes=RESPONSES_SHAPES,
    ),
    "POST /v1/responses/input_tokens": Operation(
        "OpenAI's: how many tokens a response would read",
        ResponseTokenCount,
        fields=RESPONSES_FIELDS,
        shapes=RESPONSES_SHAPES,
    ),
    "POST /v1/responses/compact": Operation("Refused: no conversation is compacted here", ResponseBody),
    "GET /v1/responses/{id}": Operation("A stored response", ResponseBody),
    "DELETE /v1/responses/{id}": Operation("Forgets a stored response", responses.DeletedResponse),
    "GET /v1/responses/{id}/input_items": Operation("What a stored response was asked", responses.ItemList),
    "POST /v1/responses/{id}/cancel": Operation("Refused: no response runs in the background", ResponseBody),
    "POST /tokenize": Operation(
        "Text or messages to token ids",
        tokenizing.TokenizedText,
        fields={**CHAT_FIELDS, **tokenizing.TOKENIZE_FIELDS},
        shapes=TOKENIZE_SHAPES,
    ),
    "POST /detokenize": Operation(
        "Token ids to text", tokenizing.Detokenized, fields=tokenizing.DETOKENIZE_FIELDS, required=("tokens",)
    ),
    "POST /apply-template": Operation(
        "Messages to the prompt's text",
        tokenizing.RenderedChat,
        fields=CHAT_FIELDS,
        required=("messages",),
        shapes=CHAT_SHAPES,
    ),
    "GET /v1/models": Operation("What is served", models.ModelList),
    "GET /v1/models/{id:.+}": Operation("One name that is served", models.ModelEntry),
    "GET /livez": Operation("The frontend lives", admin.Health),
    "GET /readyz": Operation("A request would be served now", admin.Readiness),
    "GET /health": Operation("mlx_lm.server's probe", admin.Health),
    "GET /stats": Operation("The engine's last status, and the frontend's own", admin.Stats),
    "GET /metrics": Operation("For Prometheus", kind="text/plain"),
    "GET /openapi.json": Operation("This document", kind=_JSON),
    "GET /": Operation("The page", kind="text/html"),
}


class Routed(Protocol):
    """What is known of a route here."""

    @property
    def method(self) -> str:
        """In capitals."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """The first one and the method name its operation."""
        ...


def operation_of(route: Routed) -> Operation:
    """The route's entry; there is one of each."""
    return OPERATIONS[f"{route.method} {route.paths[0]}"]


def document(routes: Iterable[Routed]) -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, Any] = {}
    for route in routes:
        operation = operation_of(route)
        for path in route.paths:
            template, parameters = _templated(path)
            entry: dict[str, Any] = paths.setdefault(template, {})
            entry[route.method.lower()] = _described(operation, parameters)
    structs = {kind for operation in OPERATIONS.values() for kind in (operation.reply, operation.error) if kind}
    ordered = sorted(structs, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE)
    return {
        "openapi": _VERSION,
        "info": {"title": "Convoy", "version": "1", "description": "A language model on this machine."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


DOCUMENT: Final = web.AppKey("openapi_document", bytes)


async def openapi(request: web.Request) -> web.Response:
    """The document of the running application."""
    return web.Response(body=request.app[DOCUMENT], content_type=_JSON)


def _described(operation: Operation, parameters: list[Schema]) -> dict[str, Any]:
    described: dict[str, Any] = {"summary": operation.summary, "responses": _responses(operation)}
    if parameters:
        described["parameters"] = parameters
    if operation.fields is not None:
        schema = table_schema(operation.fields, operation.required, operation.shapes)
        described["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    kind = operation.kind or _JSON
    schema: Schema = {} if operation.reply is None else _reference(operation.reply)
    content: dict[str, Any] = {kind: {"schema": schema} if schema else {}}
    if operation.has_stream:
        content["text/event-stream"] = {}
    return {
        "200": {"description": "done", "content": content},
        "default": {"description": "an error", "content": {_JSON: {"schema": _reference(operation.error)}}},
    }


def _reference(kind: type[msgspec.Struct]) -> Schema:
    return {"$ref": _REFERENCE.format(name=kind.__name__)}


def _templated(path: str) -> tuple[str, list[Schema]]:
    """aiohttp's `{id:.+}` as OpenAPI's `{id}`, and the parameter that it is."""
    before, brace, rest = path.partition("{")
    if not brace:
        return path, []
    name, _, after = rest.partition("}")
    name = name.partition(":")[0]
    parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    return f"{before}{{{name}}}{after}", [parameter]
