"""The HTTP application: which route is served by which handler, and what surrounds them all."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec
from aiohttp import web

from frontend import admin, models, prometheus, responses, tokenizing
from frontend.access import ACCESS, access_rules, admit, answer_later, preflight_headers, tell_origin
from frontend.dialects.anthropic_errors import ANTHROPIC_ENVELOPE
from frontend.errors import OPENAI_ENVELOPE, Envelope
from frontend.handlers import CHAT, COMPLETIONS, MESSAGES, generation_handler
from frontend.middleware import ENVELOPES, MAX_BODY_BYTES, METRICS, add_request_id, guard
from frontend.openapi import DOCUMENT, document, openapi
from frontend.page.document import page
from frontend.parts import PARTS, FrontendParts
from frontend.response_shelf import shelf_context
from frontend.token_count import count_tokens

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """One handler under each of its paths; mlx_lm.server has the ones without /v1, too."""

    method: str
    paths: tuple[str, ...]
    handler: Handler
    envelope: Envelope = OPENAI_ENVELOPE


ROUTES: Final = (
    Route("POST", ("/v1/chat/completions", "/chat/completions"), generation_handler(CHAT)),
    Route("POST", ("/v1/completions", "/completions"), generation_handler(COMPLETIONS)),
    Route("POST", ("/v1/messages", "/messages"), generation_handler(MESSAGES), ANTHROPIC_ENVELOPE),
    Route("POST", ("/v1/responses", "/responses"), responses.create),
    Route("POST", ("/v1/responses/input_tokens", "/responses/input_tokens"), responses.count_input),
    Route("POST", ("/v1/responses/compact", "/responses/compact"), responses.compact),
    Route("GET", ("/v1/responses/{id}", "/responses/{id}"), responses.retrieve),
    Route("DELETE", ("/v1/responses/{id}", "/responses/{id}"), responses.delete),
    Route("GET", ("/v1/responses/{id}/input_items", "/responses/{id}/input_items"), responses.list_input_items),
    Route("POST", ("/v1/responses/{id}/cancel", "/responses/{id}/cancel"), responses.cancel),
    Route("POST", ("/tokenize", "/v1/tokenize"), tokenizing.tokenize),
    Route("POST", ("/detokenize", "/v1/detokenize"), tokenizing.detokenize),
    Route("POST", ("/apply-template", "/v1/apply-template"), tokenizing.apply_template),
    Route("POST", ("/v1/messages/count_tokens", "/messages/count_tokens"), count_tokens, ANTHROPIC_ENVELOPE),
    Route("GET", ("/v1/models", "/models"), models.list_models),
    Route("GET", ("/v1/models/{id:.+}", "/models/{id:.+}"), models.show_model),
    Route("GET", ("/livez",), admin.livez),
    Route("GET", ("/readyz",), admin.readyz),
    Route("GET", ("/health",), admin.health),
    Route("GET", ("/stats",), admin.stats),
    Route("GET", ("/metrics",), prometheus.metrics),
    Route("GET", ("/openapi.json",), openapi),
    Route("GET", ("/",), page),
)


def build_app(parts: FrontendParts) -> web.Application:
    """The application over an EngineClient that the caller runs."""
    app = web.Application(middlewares=[guard, admit], client_max_size=parts.settings.max_body_bytes)
    app[PARTS] = parts
    app[MAX_BODY_BYTES] = parts.settings.max_body_bytes
    app[ENVELOPES] = {
        path: route.envelope for route in ROUTES for path in route.paths if route.envelope is not OPENAI_ENVELOPE
    }
    app[METRICS] = parts.client.metrics
    app[DOCUMENT] = msgspec.json.encode(document(ROUTES))
    app[ACCESS] = access_rules(parts)
    app.on_response_prepare.append(add_request_id)
    app.on_response_prepare.append(tell_origin)
    app.cleanup_ctx.append(shelf_context)
    methods: dict[str, list[str]] = {}
    for route in ROUTES:
        for path in route.paths:
            methods.setdefault(path, []).extend(["GET", "HEAD"] if route.method == "GET" else [route.method])
            if route.method == "GET":
                app.router.add_get(path, route.handler, allow_head=True)
            else:
                app.router.add_route(route.method, path, route.handler, expect_handler=answer_later)
    for path, allowed in methods.items():
        app.router.add_options(path, _options_handler(", ".join([*allowed, "OPTIONS"])))
    return app


def _options_handler(allowed: str) -> Handler:
    """Names the methods, and tells a browser whether the page that asks may use them."""

    async def options(request: web.Request) -> web.Response:
        return web.Response(status=204, headers={"allow": allowed, **preflight_headers(request, allowed)})

    return options
