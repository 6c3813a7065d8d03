"""What a client that asked for an unknown route may have meant: most have a base URL that is almost right."""

import re
from collections.abc import Iterator
from typing import Final

from aiohttp import web

_SLASHES: Final = re.compile(r"/{2,}")
_VERSION: Final = "/v1"
# Words of a route behind its version, as in responses/ID/input_items.
_LONGEST: Final = 3
_BASE_URLS: Final = (
    "check the client's base URL: it ends with /v1 for OpenAI's clients, and with the port for Anthropic's"
)
_OLLAMA: Final = frozenset(
    f"/api/{name}" for name in ("chat", "generate", "tags", "show", "ps", "version", "embed", "embeddings", "pull")
)


async def route_hint(request: web.Request) -> str:
    """What to do instead, for a request that no route takes."""
    if request.path in _OLLAMA:
        return "this is Ollama's API: choose OpenAI's in the client, with a base URL that ends with /v1"
    for path in _meant(request.path):
        if path != request.path and await _is_known(request, path):
            return f"did you mean {path}? {_BASE_URLS}"
    return "GET /openapi.json lists all routes"


async def _is_known(request: web.Request, path: str) -> bool:
    found = await request.app.router.resolve(request.clone(rel_url=request.rel_url.with_path(path)))
    return not isinstance(found.http_exception, web.HTTPNotFound)


def _meant(path: str) -> Iterator[str]:
    """Paths that this one may stand for, the likeliest first: of a doubled base the last is meant."""
    plain = _SLASHES.sub("/", path).rstrip("/") or "/"
    yield plain
    _, version, rest = plain.rpartition(f"{_VERSION}/")
    if version:
        yield f"{_VERSION}/{rest}"
    words = plain.split("/")
    for start in range(max(1, len(words) - _LONGEST), len(words)):
        yield "/".join((_VERSION, *words[start:]))
