"""Who may ask: keys, origins, hosts, content types, over real HTTP."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from frontend.access import AccessRules, is_loopback
from frontend.app import ROUTES
from tests.fakes.serving import Served, serving

COMPLETIONS = "/v1/completions"
BODY: dict[str, Any] = {"prompt": "!echo x"}
PAGE = "http://page.example"


async def told(served: Served, path: str = COMPLETIONS, **headers: str) -> tuple[int, str]:
    """Status and error code of a POST with these headers; underscores are dashes."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    status, reply = await served.answer(path, BODY, headers=sent)
    return status, reply.get("error", {}).get("code", "")


async def test_a_key_is_asked_for(runtime_dir: Path) -> None:
    """Any of the keys in either header; none and a wrong one are 401 in OpenAI's envelope; nothing is submitted."""
    async with serving(runtime_dir, keys=["alpha", "beta"]) as served:
        refused = (401, "invalid_api_key")
        assert await told(served) == refused
        assert await told(served, authorization="Bearer alph") == refused
        assert await told(served, authorization="Basic alpha") == refused
        assert await told(served, x_api_key="gamma") == refused
        assert served.engine.submits() == []
        assert await told(served, authorization="Bearer alpha") == (200, "")
        assert await told(served, x_api_key="beta") == (200, "")
        assert await told(served, authorization="Bearer wrong", x_api_key="beta") == (200, "")


async def test_a_401_says_how_to_show_a_key(runtime_dir: Path) -> None:
    """The envelope, the challenge, the request id, and not the key that was sent."""
    async with serving(runtime_dir, keys=["alpha"]) as served:
        headers = {"authorization": "Bearer not-the-key", "x-request-id": "abc"}
        async with await served.post(COMPLETIONS, BODY, headers=headers) as response:
            error = (await response.json())["error"]
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
            assert response.headers["x-request-id"] == "abc"
            assert set(error) == {"message", "type", "param", "code"}
            assert "Authorization: Bearer KEY" in error["message"]
            assert "not-the-key" not in error["message"]


async def test_only_probes_and_the_page_are_open(runtime_dir: Path) -> None:
    """Every other route wants a key, as does one that does not exist."""
    open_paths = {"/", "/livez", "/readyz", "/health"}
    async with serving(runtime_dir, keys=["alpha"]) as served:
        closed = {path.partition("{")[0] + "x" * ("{" in path) for route in ROUTES for path in route.paths} - open_paths
        for path in [*sorted(open_paths), *sorted(closed), "/nowhere"]:
            async with served.session.get(served.url + path) as response:
                assert (response.status, path) == (200 if path in open_paths else 401, path)


async def test_keys_are_in_no_log(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither right ones nor wrong ones, at any level."""
    caplog.set_level(logging.DEBUG)
    async with serving(runtime_dir, keys=["alpha-secret"]) as served:
        await told(served, authorization="Bearer alpha-secret")
        await told(served, x_api_key="guess-secret")
    assert "request.done" in caplog.text
    said = " ".join(f"{vars(record)}" for record in caplog.records if record.name.startswith("frontend"))
    assert "secret" not in said


async def test_a_foreign_page_cannot_post(runtime_dir: Path) -> None:
    """Its browser sends an Origin; a page of the server's own may, and so may whatever is no browser."""
    async with serving(runtime_dir) as served:
        refused = (403, "origin_not_allowed")
        assert await told(served, origin=PAGE) == refused
        assert await told(served, origin="null") == refused
        assert await told(served, origin=served.url + "0") == refused
        assert served.engine.submits() == []
        assert await told(served, origin=served.url) == (200, "")
        assert await told(served) == (200, "")


async def test_without_allowed_origins_there_is_no_cors_header(runtime_dir: Path) -> None:
    """Neither on replies nor on preflights."""
    async with serving(runtime_dir) as served:
        ask = {"origin": PAGE, "access-control-request-method": "POST"}
        async with served.session.options(served.url + COMPLETIONS, headers=ask) as response:
            assert [name for name in response.headers if name.lower().startswith("access-control")] == []
        async with served.session.get(served.url + "/v1/models", headers={"origin": PAGE}) as response:
            assert response.status == 200
            assert [name for name in response.headers if name.lower().startswith("access-control")] == []


async def test_an_allowed_page_may_post_and_read(runtime_dir: Path) -> None:
    """Whole replies, streams and errors carry its origin; another page's is refused as before."""
    async with serving(runtime_dir, {"allowed_origins": (PAGE, "http://other.example")}) as served:
        bodies: list[dict[str, Any]] = [BODY, {**BODY, "stream": True}, {"prompt": 7}]
        for body, status in zip(bodies, (200, 200, 400), strict=True):
            async with await served.post(COMPLETIONS, body, headers={"origin": PAGE}) as response:
                assert (response.status, response.headers["access-control-allow-origin"]) == (status, PAGE)
                assert response.headers["vary"] == "origin"
                assert "x-request-id" in response.headers["access-control-expose-headers"]
                await response.read()
        assert await told(served, origin="http://third.example") == (403, "origin_not_allowed")


async def test_preflight_of_an_allowed_page(runtime_dir: Path) -> None:
    """Needs no key: a browser sends none; names the methods and takes the headers that are asked for."""
    async with serving(runtime_dir, {"allowed_origins": (PAGE,)}, keys=["alpha"]) as served:
        ask = {
            "origin": PAGE,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type, x-stainless-os",
            "access-control-request-private-network": "true",
        }
        async with served.session.options(served.url + COMPLETIONS, headers=ask) as response:
            assert response.status == 204
            assert response.headers["access-control-allow-origin"] == PAGE
            assert response.headers["access-control-allow-methods"] == "POST, OPTIONS"
            assert response.headers["access-control-allow-headers"] == ask["access-control-request-headers"]
            assert response.headers["access-control-allow-private-network"] == "true"
        async with served.session.options(served.url + COMPLETIONS, headers={**ask, "origin": "http://b"}) as response:
            assert [name for name in response.headers if name.lower().startswith("access-control")] == []


async def test_any_origin(runtime_dir: Path) -> None:
    """`*` lets every page in, with or without an origin of its own."""
    async with serving(runtime_dir, {"allowed_origins": ("*",)}) as served:
        assert await told(served, origin=PAGE) == (200, "")
        assert await told(served, origin="null") == (200, "")
        assert await told(served, host="anything.example") == (200, "")


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1:1", "[::1]:8080", "my.localhost:80", "host.docker.internal:8080", "mac", "LOCALHOST:1"],
)
async def test_names_of_this_machine(runtime_dir: Path, host: str) -> None:
    """Addresses and names that no public name server can make up."""
    async with serving(runtime_dir) as served:
        assert await told(served, host=host) == (200, "")


async def test_a_name_that_was_made_to_point_here(runtime_dir: Path) -> None:
    """DNS rebinding: origin and host agree, and are not ours. A key, or the name allowed, lets it in."""
    async with serving(runtime_dir) as served:
        assert await told(served, host="evil.example:80", origin="http://evil.example:80") == (403, "host_not_allowed")
        async with served.session.get(served.url + "/v1/models", headers={"host": "evil.example"}) as response:
            assert response.status == 403
            assert "--allowed-origins http://evil.example" in (await response.json())["error"]["message"]
    async with serving(runtime_dir, keys=["alpha"]) as served:
        assert await told(served, host="proxy.example", authorization="Bearer alpha") == (200, "")
    async with serving(runtime_dir, {"allowed_origins": ("https://proxy.example",)}) as served:
        assert await told(served, host="proxy.example") == (200, "")


def test_hosts_are_checked_on_loopback_only() -> None:
    """Who binds elsewhere has given the machine a name of its own choice."""
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "")] == [True, True] + [False] * 3
    assert not AccessRules().checks_host


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/octet-stream", 415),
        ("", 415),
    ],
)
async def test_a_body_must_be_json(runtime_dir: Path, kind: str, status: int) -> None:
    """Whatever a page can send without a preflight is refused, also without an Origin."""
    async with serving(runtime_dir) as served:
        found = await told(served, content_type=kind)
        assert found == (status, "" if status == 200 else "unsupported_media_type")


async def raw(served: Served, head: str, body: bytes = b"") -> bytes:
    """What comes back for bytes sent as they are, up to the end of a JSON body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(head.replace("\n", "\r\n").encode() + body)
    await writer.drain()
    async with asyncio.timeout(10):
        answer = await reader.readuntil(b"}}")
    writer.close()
    return answer


HEAD = "POST /v1/completions HTTP/1.1\nhost: localhost\nconnection: close\ncontent-type: application/json\n"


async def test_a_large_body_is_refused_unread(runtime_dir: Path) -> None:
    """By its announced length, before any of it has come; a client that waits for a word is not asked for it."""
    async with serving(runtime_dir, {"max_body_bytes": 2_000}) as served:
        for expectation in ("", "expect: 100-continue\n"):
            answer = await raw(served, f"{HEAD}content-length: 2001\n{expectation}\n")
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b"over the limit of 2000 bytes" in answer
        chunked = await raw(
            served, f"{HEAD}transfer-encoding: chunked\n\n", b"7d1\r\n" + b" " * 2_001 + b"\r\n0\r\n\r\n"
        )
        assert b" 413 " in chunked.partition(b"\r\n")[0]


async def test_a_client_that_waits_is_asked_for_its_body(runtime_dir: Path) -> None:
    """100 Continue once the request may go on; another expectation is 417, a missing key 401, without it."""
    body = b'{"prompt": "!echo x"}'
    async with serving(runtime_dir) as served:
        answer = await raw(served, f"{HEAD}content-length: {len(body)}\nexpect: 100-continue\n\n", body)
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        answer = await raw(served, f"{HEAD}content-length: {len(body)}\nexpect: tea\n\n", body)
        assert answer.startswith(b"HTTP/1.1 417 ")
        assert b'"invalid_request"' in answer
    async with serving(runtime_dir, keys=["alpha"]) as served:
        answer = await raw(served, f"{HEAD}content-length: {len(body)}\nexpect: 100-continue\n\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
