"""Adapters over HTTP: named in their own field or as the model, listed, and refused by name."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.deadline import until
from tests.fakes.serving import Served, serving

CHAT = "/v1/chat/completions"
ADAPTERS = ("sql", "poems")


def body(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "!echo x"}], **fields}


async def adapter_of(served: Served, **fields: Any) -> str | None:
    """Which adapter the engine is asked for."""
    status, reply = await served.answer(CHAT, body(**fields))
    assert status == 200, reply
    return served.engine.submits()[-1].adapter


async def test_an_adapter_is_named_by_field_or_as_the_model(runtime_dir: Path) -> None:
    """Both ways, and none by default; the reply has the name that was asked for."""
    async with serving(runtime_dir, adapters=ADAPTERS) as served:
        await until(lambda: served.parts.client.adapters == ADAPTERS, "the engine's adapters are heard")
        assert await adapter_of(served) is None
        assert await adapter_of(served, adapters="sql") == "sql"
        assert await adapter_of(served, model="poems") == "poems"
        assert await adapter_of(served, model="poems", adapters="poems") == "poems"
        assert await adapter_of(served, model="fake-model", adapters="sql") == "sql"
        assert (await served.answer(CHAT, body(model="poems")))[1]["model"] == "poems"


async def test_adapters_are_listed_as_models(runtime_dir: Path) -> None:
    """After the model itself; each can be asked for alone."""
    async with serving(runtime_dir, adapters=ADAPTERS) as served:
        await until(lambda: served.parts.client.adapters == ADAPTERS, "the engine's adapters are heard")
        _, models = await served.get("/v1/models")
        assert [model["id"] for model in models["data"]] == ["fake-model", "sql", "poems"]
        assert (await served.get("/v1/models/sql"))[0] == 200


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"adapters": "unknown"}, 404, "adapters"),
        ({"adapters": "/etc/adapters"}, 400, "adapters"),
        ({"adapters": "../sql"}, 400, "adapters"),
        ({"adapters": ""}, 400, "adapters"),
        ({"adapters": 5}, 400, "adapters"),
        ({"adapters": ["sql"]}, 400, "adapters"),
        ({"model": "sql", "adapters": "poems"}, 400, "adapters"),
        ({"model": "unknown"}, 404, "model"),
    ],
)
async def test_a_wrong_adapter_is_refused(runtime_dir: Path, fields: dict[str, Any], status: int, param: str) -> None:
    """By its field; a path is never taken."""
    async with serving(runtime_dir, adapters=ADAPTERS) as served:
        await until(lambda: served.parts.client.adapters == ADAPTERS, "the engine's adapters are heard")
        answered, reply = await served.answer(CHAT, body(**fields))
        assert (answered, reply["error"]["param"]) == (status, param)
