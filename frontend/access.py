"""Who may ask: the host that a request names, the page it comes from, its key, and what it says its body is.

Everything here is judged by headers alone, before a byte of the body is read. Owns no handler.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, web

from frontend.api_keys import ApiKeys, shown_keys
from frontend.errors import HttpErrorCode, RequestError
from frontend.parts import PARTS, FrontendParts

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# A supervisor or a load balancer has no key; what these say is no secret.
OPEN_PATHS: Final = frozenset({"/livez", "/readyz", "/health"})
# The page holds nothing of the server's, and is where a person types the key.
_KEYLESS_PATHS: Final = frozenset({"/"})
ANY_ORIGIN: Final = "*"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_EXPOSED: Final = "x-request-id, request-id, x-convoy-ignored, retry-after"
_PREFLIGHT_MAX_AGE_S: Final = "600"
# Names that no public name server can point here: reserved ones, and those of one word.
_PRIVATE_SUFFIXES: Final = (".localhost", ".internal")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """checks_host: on, where only this machine can connect and no key stands in the way of a page in its browser.

    origins: of pages that may use this server, beside the server's own.
    """

    origins: frozenset[str] = frozenset()
    keys: ApiKeys = field(default_factory=ApiKeys)
    checks_host: bool = False

    @property
    def is_any_origin_allowed(self) -> bool:
        """Whether pages of all origins may use this server."""
        return ANY_ORIGIN in self.origins

    def check(self, request: web.Request) -> None:
        """Raises RequestError when the request may not go on to its handler."""
        if request.method == "OPTIONS" or request.path in OPEN_PATHS:
            return
        self._check_host(request)
        self._check_origin(request)
        self._check_key(request)
        _check_body(request)

    def lets_in(self, origin: str) -> bool:
        """Whether a page of this foreign origin may use this server."""
        return self.is_any_origin_allowed or origin in self.origins

    def _check_host(self, request: web.Request) -> None:
        """A page of any site can make its own name point at this machine: then its origin looks like ours."""
        host = request.headers.get("host")
        if not self.checks_host or host is None or _is_private(host):
            return
        if self.is_any_origin_allowed or any(urlsplit(origin).netloc == host.lower() for origin in self.origins):
            return
        raise RequestError(
            HttpErrorCode.HOST_NOT_ALLOWED,
            f"the host name `{host[:256]}` is not this server's: allow it with --allowed-origins http://{host[:256]}, "
            "or ask for a key with --api-key",
        )

    def _check_origin(self, request: web.Request) -> None:
        """Only browsers send an Origin, and always with what may change something."""
        origin = request.headers.get("origin")
        if origin is None or request.method in _SAFE_METHODS or self.lets_in(origin.lower()):
            return
        if not _is_own(origin, request):
            raise RequestError(
                HttpErrorCode.ORIGIN_NOT_ALLOWED,
                f"pages of `{origin[:256]}` may not use this server: allow them with --allowed-origins {origin[:256]}",
            )

    def _check_key(self, request: web.Request) -> None:
        if not self.keys.are_required or request.path in _KEYLESS_PATHS:
            return
        keys = shown_keys(request.headers)
        if any(self.keys.accept(key) for key in keys):
            return
        why = "the API key is not one of this server's" if keys else "this server asks for an API key"
        raise RequestError(
            HttpErrorCode.INVALID_API_KEY, f"{why}: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
        )


ACCESS: Final = web.AppKey("access", AccessRules)


def access_rules(parts: FrontendParts) -> AccessRules:
    """The rules of one frontend, from its settings, its keys and where it listens."""
    is_local = all(is_loopback(urlsplit(url).hostname or "") for url in parts.listens)
    origins = frozenset(origin.lower() for origin in parts.settings.allowed_origins)
    return AccessRules(origins, parts.keys, checks_host=is_local and not parts.keys.are_required)


@web.middleware
async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses what may not ask before its body is read, and where the client waits for a word, before it is sent."""
    request.app[ACCESS].check(request)
    expected = request.headers.get("expect", "").lower()
    if expected and request.version >= HttpVersion11:
        if expected != "100-continue":
            raise web.HTTPExpectationFailed
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # aiohttp must not take this for the beginning of the response.
        request.writer.output_size = 0
    return await handler(request)


async def answer_later(request: web.Request) -> None:
    """In place of aiohttp's own answer to `Expect`, which would invite a body that is then refused; admit gives it."""
    del request


async def tell_origin(request: web.Request, response: web.StreamResponse) -> None:
    """Lets the page of an allowed origin read the response; without allowed origins there is no such header."""
    rules = request.app[ACCESS]
    if not rules.origins:
        return
    response.headers.add("vary", "origin")
    origin = request.headers.get("origin")
    if origin is not None and rules.lets_in(origin.lower()):
        response.headers["access-control-allow-origin"] = origin
        response.headers["access-control-expose-headers"] = _EXPOSED


def preflight_headers(request: web.Request, methods: str) -> dict[str, str]:
    """What a browser wants to know before it sends a page's request; nothing to one of a foreign origin."""
    origin = request.headers.get("origin")
    if origin is None or not request.app[ACCESS].lets_in(origin.lower()):
        return {}
    headers = {"access-control-allow-methods": methods, "access-control-max-age": _PREFLIGHT_MAX_AGE_S}
    # OpenAI's browser client alone sends ten of its own, and others every month.
    wanted = request.headers.get("access-control-request-headers")
    if wanted is not None:
        headers["access-control-allow-headers"] = wanted
    if "access-control-request-private-network" in request.headers:
        headers["access-control-allow-private-network"] = "true"
    return headers


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_own(origin: str, request: web.Request) -> bool:
    """Whether a page was served from here. The scheme is not compared: a proxy may have taken the TLS off."""
    return urlsplit(origin.lower()).netloc == request.headers.get("host", "").lower()


def _is_private(host: str) -> bool:
    """Whether a Host header's name is an address, or one that cannot be a public name."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        ipaddress.ip_address(name)
    except ValueError:
        name = host.rpartition(":")[0].lower() or host.lower()
        return "." not in name or name.endswith(_PRIVATE_SUFFIXES)
    return True


def _check_body(request: web.Request) -> None:
    """A body that says it is something else is what a page can send without asking first."""
    if not request.body_exists:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise RequestError(
            HttpErrorCode.UNSUPPORTED_MEDIA_TYPE,
            f"the request body must be JSON, and its content type is `{kind or 'missing'}`: "
            "send the header `Content-Type: application/json`",
        )
    most = request.app[PARTS].settings.max_body_bytes
    if (request.content_length or 0) > most:
        raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
