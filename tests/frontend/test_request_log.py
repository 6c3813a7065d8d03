"""Each request leaves one line, whatever becomes of it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from frontend.request_log import request_id
from tests.fakes.deadline import until
from tests.fakes.serving import serving

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("abc-1", True), ("a.b_c:d/e+f=g@h", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("", False)],
)
def test_a_clients_id_is_kept_when_it_is_sane(given: str, is_kept: bool) -> None:
    """What could break a log line, or fill it, is replaced; so is none at all."""
    assert (request_id(given) == given) == is_kept
    assert request_id(None) != request_id(None)


async def test_one_line_for_each_request(runtime_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whole, streamed, refused by its body, by its key, by its route, and left by its client: id, status and path."""
    caplog.set_level(logging.DEBUG, logger="frontend")
    key = {"authorization": "Bearer alpha"}
    body: dict[str, Any] = {"prompt": "!echo x"}
    cases = [
        (COMPLETIONS, body, key, 200),
        (COMPLETIONS, {**body, "stream": True}, key, 200),
        (COMPLETIONS, {"prompt": 7}, key, 400),
        (COMPLETIONS, body, {}, 401),
        ("/nowhere", body, key, 404),
    ]
    async with serving(runtime_dir, keys=["alpha"]) as served:
        for number, (path, content, headers, status) in enumerate(cases):
            async with await served.post(
                path, content, headers={**headers, "x-request-id": f"id-{number}"}
            ) as response:
                assert response.status == status
                await response.read()
        endless = {"prompt": "!count", "stream": True}
        response = await served.post(COMPLETIONS, endless, headers={**key, "x-request-id": "left"})
        response.close()
        await until(lambda: "left" in [line["request_id"] for line in done_lines(caplog)], "the left one has its line")
        lines = done_lines(caplog)
    expected = [(f"id-{number}", path, status) for number, (path, _, _, status) in enumerate(cases)]
    found = [(line["request_id"], line["path"], line["status"]) for line in lines]
    assert found == [*expected, ("left", COMPLETIONS, 499)]
    assert lines[0]["completion_tokens"] > 0
    assert lines[2]["error_code"] == "invalid_request"


def done_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the requests' lines, in order."""
    return [vars(record) for record in caplog.records if record.getMessage() == "request.done"]


ANSWERS: list[tuple[str, str, dict[str, Any], int]] = [
    ("POST", COMPLETIONS, {"json": {"prompt": "!echo x"}}, 200),
    ("POST", COMPLETIONS, {"json": {"prompt": "!echo x", "stream": True}}, 200),
    ("POST", COMPLETIONS, {"json": {"prompt": "!fail 2", "stream": True}}, 200),
    ("POST", COMPLETIONS, {"json": [1]}, 400),
    ("POST", COMPLETIONS, {"json": {"prompt": "x", "model": "nobody"}}, 404),
    ("POST", COMPLETIONS, {"data": b"x" * 3_000, "headers": {"content-type": "application/json"}}, 413),
    ("POST", COMPLETIONS, {"data": b"{}", "headers": {"content-type": "text/plain"}}, 415),
    ("POST", COMPLETIONS, {"json": {"prompt": "x"}, "headers": {"origin": "http://elsewhere.example"}}, 403),
    ("GET", COMPLETIONS, {}, 405),
    ("OPTIONS", COMPLETIONS, {}, 204),
    ("GET", "/nowhere", {}, 404),
    ("HEAD", "/health", {}, 200),
    ("GET", "/", {}, 200),
    ("POST", "/v1/messages", {"json": {"messages": [{"role": "user", "content": "!echo x"}], "stream": True}}, 200),
    ("POST", "/v1/messages", {"json": {}}, 400),
    ("POST", "/v1/responses", {"json": {"input": "!echo x", "stream": True}}, 200),
    ("GET", "/v1/responses/resp_none", {}, 404),
]


@pytest.mark.parametrize(("method", "path", "options", "status"), ANSWERS)
async def test_every_answer_tells_the_requests_id(
    runtime_dir: Path, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    """Whatever it is, a client can say which line of the log is meant; Anthropic's look for it under another name."""
    async with serving(runtime_dir, {"max_body_bytes": 2_000}) as served:
        headers = {**options.get("headers", {}), "x-request-id": "mine-1"}
        async with served.session.request(method, served.url + path, **{**options, "headers": headers}) as response:
            await response.read()
            assert (response.status, response.headers["x-request-id"]) == (status, "mine-1")
            named = response.headers.get("request-id")
            assert named == ("mine-1" if path.startswith("/v1/messages") else None)
