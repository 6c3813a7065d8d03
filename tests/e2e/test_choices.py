"""Several choices of one prompt: indexes, endings, seeds and usage, streamed and not."""

from typing import Any

import pytest

from tests.e2e.client import CHAT, COMPLETIONS, chat, client_of
from tests.e2e.cluster import MAX_ROWS, Cluster

QUESTION = "Name an animal and say where it lives."


def texts_by_index(events: list[Any], count: int) -> list[str]:
    """The joined deltas of each choice of a stream."""
    texts = [""] * count
    for event in events:
        for choice in event["choices"] if isinstance(event, dict) else []:
            texts[choice["index"]] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return texts


async def test_n_choices_are_different_and_repeatable(cluster: Cluster) -> None:
    """D5: with a seed four different texts, the same in both modes; choice 0 is what the seed gives alone."""
    body = chat(QUESTION, max_tokens=16, ignore_eos=True, temperature=1, seed=11, n=4)
    async with client_of(cluster.url) as client:
        whole = await client.ask(CHAT, body)
        stream = await client.stream(CHAT, {**body, "stream_options": {"include_usage": True}})
        alone = await client.ask(CHAT, {**body, "n": 1})
    assert [choice["index"] for choice in whole.body["choices"]] == [0, 1, 2, 3]
    texts = [choice["message"]["content"] for choice in whole.body["choices"]]
    assert len(set(texts)) == 4
    assert texts_by_index(stream.events, 4) == texts
    assert stream.finish_reasons == ["length"] * 4
    assert texts[0] == alone.text
    usage, usage_alone = whole.body["usage"], alone.body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (usage_alone["prompt_tokens"], 64)
    # What the first request computed of the prompt the second one need not.
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [stream.events[-2]["usage"][name] for name in counts] == [usage[name] for name in counts]


async def test_one_choice_ends_before_the_others(cluster: Cluster) -> None:
    """D5: a stop string ends the choice that says it; each has its one finish reason and its own text."""
    body = {"prompt": QUESTION, "max_tokens": 24, "ignore_eos": True, "temperature": 1, "seed": 3, "n": 3}
    async with client_of(cluster.url) as client:
        free = [choice["text"] for choice in (await client.ask(COMPLETIONS, body)).body["choices"]]
        stop = free[1][len(free[1]) // 2 :][:6]
        stream = await client.stream(COMPLETIONS, {**body, "stop": stop})
    expected = [text[: text.find(stop)] if stop in text else text for text in free]
    assert texts_by_index(stream.events, 3) == expected
    choices = [event["choices"][0] for event in stream.events[:-1]]
    reasons = {choice["index"]: choice["finish_reason"] for choice in choices if choice["finish_reason"]}
    assert reasons == {index: "stop" if stop in text else "length" for index, text in enumerate(free)}
    assert len(stream.finish_reasons) == 3


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_more_choices_than_rows_are_refused(cluster: Cluster, path: str) -> None:
    """`n` over the row cap is a 400 that names both."""
    async with client_of(cluster.url) as client:
        body = chat("Hello.", n=MAX_ROWS + 1) if path == CHAT else {"prompt": "Hello.", "n": MAX_ROWS + 1}
        reply = await client.ask(path, body)
    assert (reply.status, reply.body["error"]["param"]) == (400, "n")
    assert f"`n` is {MAX_ROWS + 1}" in reply.body["error"]["message"]
    assert f"at most {MAX_ROWS} rows" in reply.body["error"]["message"]
