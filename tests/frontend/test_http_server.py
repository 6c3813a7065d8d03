"""What a client gets that does not speak HTTP."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from tests.fakes.serving import Served, serving

MALFORMED = [
    b"NONSENSE\r\n\r\n",
    b"GET /livez HTTP/9.9\r\nhost: a\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost a\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 20_000 + b"\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 32,
]


async def answer_to(served: Served, sent: bytes) -> tuple[bytes, bytes]:
    """Head and body of the first response to raw bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(sent)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


@pytest.mark.parametrize("sent", MALFORMED, ids=range(len(MALFORMED)))
async def test_what_is_no_http_gets_the_envelope(
    runtime_dir: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A 400 as any other, one line in the log without a traceback, the end of the connection; the server goes on."""
    caplog.set_level(logging.DEBUG, logger="frontend")
    async with serving(runtime_dir) as served:
        head, body = await answer_to(served, sent)
        assert head.split()[1] == b"400"
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert (error["code"], error["type"]) == ("invalid_request", "invalid_request_error")
        assert error["message"].startswith("the request is not valid HTTP: ")
        assert (await served.get("/livez"))[0] == 200
    (line,) = [record for record in caplog.records if record.getMessage() == "request.malformed"]
    assert line.exc_info is None
    assert f"x-request-id: {line.__dict__['request_id']}".encode() in head.lower()


async def test_a_bad_chunk_gets_the_envelope(runtime_dir: Path) -> None:
    """A body whose chunks make no sense is a 400, too, wherever the parser notices."""
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    async with serving(runtime_dir) as served:
        for chunks in (b"xyz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}}}}\r\n0\r\n\r\n"):
            answer, body = await answer_to(served, head + chunks)
            assert answer.split()[1] == b"400"
            assert json.loads(body)["error"]["code"] == "invalid_request"
