"""Prompts of very different lengths at once, as clients see them."""

import asyncio

from tests.e2e.client import COMPLETIONS, client_of
from tests.e2e.cluster import Cluster
from tests.e2e.test_cancel import LONG_PROMPT, slowly_read
from tests.e2e.waits import rows_are


async def test_a_short_prompt_is_answered_before_a_long_one_that_came_first(cluster: Cluster) -> None:
    """The long prompt is under way when one of a few tokens comes, which has its whole answer first.

    A scripted engine reads the long one for ever: that it is not waited for is all there is to see.
    """
    answered: list[str] = []
    # Neither finds what another test, or the other one, has computed.
    long_body = {**slowly_read(cluster), "max_tokens": 1, "cache_salt": "prefill order, long"}
    short = {**long_body, "prompt": LONG_PROMPT["prompt"][:20], "cache_salt": "prefill order, short"}
    async with client_of(cluster.url) as client:

        async def ask(name: str, body: dict) -> int:
            reply = await client.ask(COMPLETIONS, body)
            answered.append(name)
            return reply.completion_tokens

        long = asyncio.create_task(ask("long", long_body))
        await rows_are(cluster.url, prefilling=1)
        assert await ask("short", short) == 1
        if cluster.kind == "fake":
            long.cancel()
            await rows_are(cluster.url, prefilling=0)
            assert answered == ["short"]
        else:
            assert await long == 1
            assert answered == ["short", "long"]
