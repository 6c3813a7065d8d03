"""Probes, statistics, and what unknown routes and methods get."""

from pathlib import Path

from tests.fakes.deadline import until
from tests.fakes.serving import serving


async def test_probes_while_loading_and_when_ready(runtime_dir: Path) -> None:
    """Alive at once; ready, healthy only with the engine, and the phase is told before."""
    async with serving(runtime_dir, wait=False, load_s=600) as served:
        await until(lambda: served.parts.client.state.phase == "loading", "loading is seen")
        assert await served.get("/livez") == (200, {"status": "ok"})
        assert await served.get("/readyz") == (503, {"ready": False, "phase": "loading", "detail": ""})
        assert await served.get("/health") == (503, {"status": "unavailable"})
        served.engine.phase = "ready"
        await served.parts.client.wait_ready(60)
        assert await served.get("/readyz") == (200, {"ready": True, "phase": "ready", "detail": ""})
        assert await served.get("/health") == (200, {"status": "ok"})


async def test_stats_tell_engine_and_frontend(runtime_dir: Path) -> None:
    """The engine's last status and the frontend's own counts, in one body."""
    async with serving(runtime_dir) as served:
        await served.answer("/v1/completions", {"prompt": "!count", "stop": " 3"})
        status, stats = await served.get("/stats")
        assert status == 200
        assert stats["engine"]["epoch"] == served.engine.epoch
        assert stats["engine"]["model"]["id"] == "fake-model"
        assert stats["frontend"]["requests_total"] == 1
        assert stats["frontend"]["cancels_sent"] == {"stop": 1}
        assert stats["frontend"]["listens"] == [served.url]


async def test_unknown_route_and_method(runtime_dir: Path) -> None:
    """OpenAI's envelope for both, and the allowed methods with 405."""
    async with serving(runtime_dir) as served:
        status, error = await served.get("/v1/embeddings")
        assert (status, error["error"]["code"], error["error"]["type"]) == (404, "not_found", "invalid_request_error")
        async with served.session.get(served.url + "/v1/chat/completions") as response:
            assert response.status == 405
            assert response.headers["allow"] == "OPTIONS,POST"
            assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_head_and_options(runtime_dir: Path) -> None:
    """HEAD answers as GET without a body; OPTIONS names the methods and lets no other origin in."""
    async with serving(runtime_dir) as served:
        async with served.session.head(served.url + "/health") as response:
            assert (response.status, await response.read()) == (200, b"")
        async with served.session.options(served.url + "/v1/completions", headers={"origin": "http://a"}) as response:
            assert (response.status, response.headers["allow"]) == (204, "POST, OPTIONS")
            assert "access-control-allow-origin" not in response.headers


async def test_unexpected_failure_is_a_500_that_names_the_log(runtime_dir: Path) -> None:
    """A bug in a handler is told as OpenAI's envelope, with the request id and nothing of its inside."""
    async with serving(runtime_dir) as served:
        served.parts.client = None  # type: ignore[assignment]  # breaks every handler that needs it
        async with served.session.get(served.url + "/stats", headers={"x-request-id": "abc"}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"], error["type"]) == (500, "internal", "server_error")
            assert error["message"] == "internal error; request id abc is in the log"
