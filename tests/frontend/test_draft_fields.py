"""mlx_lm.server's draft fields over HTTP: what reaches the engine, and what is refused by name."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.serving import serving

CHAT = "/v1/chat/completions"


def body(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "!echo x"}], **fields}


async def test_the_number_reaches_the_engine(runtime_dir: Path) -> None:
    """Left out, the engine's own counts."""
    async with serving(runtime_dir) as served:
        for fields in ({}, {"num_draft_tokens": 0}, {"num_draft_tokens": 7, "draft_model": "default_model"}):
            assert (await served.answer(CHAT, body(**fields)))[0] == 200
        assert [submit.draft_tokens for submit in served.engine.submits()] == [None, 0, 7]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens"),
        ({"num_draft_tokens": 33}, "num_draft_tokens"),
        ({"num_draft_tokens": "3"}, "num_draft_tokens"),
        ({"draft_model": "another"}, "draft_model"),
        ({"draft_model": 3}, "draft_model"),
    ],
)
async def test_a_wrong_one_is_refused(runtime_dir: Path, fields: dict[str, Any], param: str) -> None:
    """With the field at fault."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(CHAT, body(**fields))
        assert (status, reply["error"]["param"]) == (400, param)
