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
