"""Unknown routes: a client whose base URL is almost right is told the path that it meant."""

from pathlib import Path

import pytest
from yarl import URL

from tests.fakes.serving import serving

MEANT = [
    ("POST", "/v1/v1/chat/completions", "/v1/chat/completions"),
    ("POST", "//v1/chat/completions", "/v1/chat/completions"),
    ("POST", "/v1//chat/completions", "/v1/chat/completions"),
    ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
    ("POST", "/v1/chat/completions/chat/completions", "/v1/chat/completions"),
    ("POST", "/v1/completions/v1/completions", "/v1/completions"),
    ("POST", "/api/chat/completions", "/v1/chat/completions"),
    ("POST", "/openai/v1/responses", "/v1/responses"),
    ("POST", "/v1/v1/messages", "/v1/messages"),
    ("POST", "/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
    ("GET", "/v1/models/", "/v1/models"),
    ("GET", "/v1/v1/models", "/v1/models"),
    ("GET", "/v1/v1/models/owner/name", "/v1/models/owner/name"),
    ("GET", "/v1/v1/responses/resp_1/input_items", "/v1/responses/resp_1/input_items"),
    ("GET", "/health/", "/health"),
    ("GET", "//", "/"),
]


@pytest.mark.parametrize(("method", "path", "meant"), MEANT)
async def test_a_path_that_is_almost_right_is_told_the_right_one(
    runtime_dir: Path, method: str, path: str, meant: str
) -> None:
    """Doubled, misplaced and trailing parts; still a 404, for the client must be mended."""
    async with serving(runtime_dir, wait=False) as served:
        url = URL(served.url + path, encoded=True)
        async with served.session.request(method, url, json={}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["code"]) == (404, "not_found")
            assert error["message"].startswith(f"unknown route: {method} {path}; did you mean {meant}? check the ")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1", "/nowhere", "/v1/" + "a/" * 3_000, "/%00%ff", "/v1/../v1/x"])
async def test_other_paths_are_shown_where_the_list_is(runtime_dir: Path, path: str) -> None:
    """Also the longest, within a blink."""
    async with serving(runtime_dir, wait=False) as served:
        response = await served.session.get(URL(served.url + path, encoded=True))
        message = (await response.json())["error"]["message"]
        assert (response.status, message.endswith("; GET /openapi.json lists all routes")) == (404, True)


async def test_ollamas_clients_are_told_which_api_this_is(runtime_dir: Path) -> None:
    """Many clients try it first on a local server."""
    async with serving(runtime_dir, wait=False) as served:
        for method, path in (("GET", "/api/tags"), ("POST", "/api/chat"), ("GET", "/api/version")):
            async with served.session.request(method, served.url + path, json={}) as response:
                assert response.status == 404
                assert "this is Ollama's API: choose OpenAI's" in (await response.json())["error"]["message"]


async def test_a_wrong_route_is_told_in_the_clients_words(runtime_dir: Path) -> None:
    """Anthropic's envelope for whoever sends its version, with both names of the request's id."""
    headers = {"anthropic-version": "2023-06-01", "x-request-id": "r-1"}
    async with serving(runtime_dir, wait=False) as served:
        response = await served.post("/v1/v1/messages", {}, headers=headers)
        reply = await response.json()
        assert (response.status, reply["error"]["type"], reply["request_id"]) == (404, "not_found_error", "r-1")
        assert response.headers["request-id"] == response.headers["x-request-id"] == "r-1"
        assert "did you mean /v1/messages?" in reply["error"]["message"]
