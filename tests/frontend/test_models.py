"""The list of models: OpenAI's and Anthropic's fields in one body, in pages where a client asks for them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.messages import ParserNames
from tests.fakes.deadline import until
from tests.fakes.fake_engine import CREATED
from tests.fakes.serving import Served, serving


@pytest.fixture
async def served(runtime_dir: Path) -> AsyncIterator[Served]:
    """A model with three names."""
    async with serving(runtime_dir, {"served_model_name": ("org/mine", "*", "third")}, model_id="fake") as found:
        yield found


async def test_models(served: Served) -> None:
    """The list names what is served, and each name can be asked for."""
    for path in ("/v1/models", "/models"):
        status, listed = await served.get(path)
        assert (status, listed["object"]) == (200, "list")
        assert [entry["id"] for entry in listed["data"]] == ["fake", "org/mine", "third"]
        assert {entry["max_model_len"] for entry in listed["data"]} == {2_048}
        assert {entry["context_length"] for entry in listed["data"]} == {2_048}
        assert {(entry["object"], entry["owned_by"], entry["parent"]) for entry in listed["data"]} == {
            ("model", "convoy", None)
        }
    assert (await served.get("/v1/models/org/mine"))[1] == listed["data"][1]


async def test_a_context_that_memory_shortens(runtime_dir: Path) -> None:
    """The model's own length and the budget are told beside it; a prompt in between is refused with both."""
    async with serving(runtime_dir, model_id="fake", model_context_length=9_000, kv_budget_bytes=77_777) as one:
        _, listed = await one.get("/v1/models")
        entry = listed["data"][0]
        assert (entry["context_length"], entry["model_context_length"], entry["kv_budget_bytes"]) == (
            2_048,
            9_000,
            77_777,
        )
        status, error = await one.answer("/v1/completions", {"prompt": [5] * 3_000})
        assert (status, error["error"]["code"]) == (400, "context_length_exceeded")
        for part in ("2048", "3000", "9000", "77777 bytes"):
            assert part in error["error"]["message"]


async def test_a_model_is_as_old_as_its_files(served: Served) -> None:
    """The same at every frontend and after every restart: clients sort and cache by it."""
    _, listed = await served.get("/v1/models")
    assert {(entry["created"], entry["created_at"]) for entry in listed["data"]} == {(CREATED, "2025-01-01T00:00:00Z")}


async def test_an_adapter_names_its_model(runtime_dir: Path) -> None:
    """As vLLM's, under `parent`."""
    async with serving(runtime_dir, model_id="fake", adapters=("sql",)) as one:
        await until(lambda: one.parts.client.adapters == ("sql",), "the adapter is told")
        _, listed = await one.get("/v1/models")
        assert [(entry["id"], entry["parent"]) for entry in listed["data"]] == [("fake", None), ("sql", "fake")]


async def test_anthropics_fields(served: Served) -> None:
    """Beside OpenAI's, in every entry and in the list."""
    _, listed = await served.get("/v1/models")
    entry = listed["data"][0]
    assert (entry["type"], entry["display_name"], entry["lifecycle"]) == ("model", "fake", "active")
    assert entry["created_at"].endswith("Z")
    assert (entry["max_input_tokens"], entry["max_tokens"]) == (2_048, 2_048)
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "fake", "third")


@pytest.mark.parametrize(
    ("query", "expected", "has_more"),
    [
        ("limit=2", ["fake", "org/mine"], True),
        ("limit=2&after_id=org/mine", ["third"], False),
        ("after_id=third", [], False),
        ("limit=1&before_id=third", ["org/mine"], True),
        ("before_id=org/mine", ["fake"], False),
        ("limit=1000", ["fake", "org/mine", "third"], False),
    ],
)
async def test_pages(served: Served, query: str, expected: list[str], has_more: bool) -> None:
    """As Anthropic's clients walk through them."""
    status, listed = await served.get(f"/v1/models?{query}")
    assert (status, [entry["id"] for entry in listed["data"]], listed["has_more"]) == (200, expected, has_more)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=" + "9" * 5_000, "after_id=nobody"])
async def test_a_page_that_cannot_be_is_refused(served: Served, query: str) -> None:
    """By the name of what is wrong."""
    status, error = await served.get(f"/v1/models?{query}")
    assert (status, error["error"]["param"]) == (400, query.partition("=")[0])


async def test_an_unknown_model_is_told_in_the_clients_words(runtime_dir: Path) -> None:
    """404 in OpenAI's envelope, and in Anthropic's for whoever sends its version header."""
    async with serving(runtime_dir, model_id="fake") as served:
        status, error = await served.get("/v1/models/gpt-4")
        assert (status, error["error"]["code"]) == (404, "model_not_found")
        headers = {"anthropic-version": "2023-06-01"}
        async with served.session.get(served.url + "/v1/models/gpt-4", headers=headers) as response:
            error = await response.json()
            assert (response.status, error["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("parsers", "told"),
    [
        ({}, ("hermes", None)),
        ({"tool_parser": "none"}, (None, None)),
        ({"tool_parser": "harmony", "reasoning_parser": "think"}, ("harmony", "think")),
    ],
)
async def test_the_formats_of_replies_are_told(
    runtime_dir: Path, parsers: dict[str, str], told: tuple[str | None, str | None]
) -> None:
    """Here, by /stats and to the engine: Hermes', too, where the prompt tells the tools, and that there are none."""
    async with serving(runtime_dir, parsers) as one:
        entry = (await one.get("/v1/models"))[1]["data"][0]
        facts = (await one.get("/stats"))[1]["frontend"]
        assert [(found["tool_parser"], found["reasoning_parser"]) for found in (entry, facts)] == [told, told]
        await until(
            lambda: list(one.engine.parsers.values()) == [ParserNames(tools=told[0], reasoning=told[1])], "told"
        )
