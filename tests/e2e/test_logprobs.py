"""Log-probabilities, echo, best_of and sampling fields, as a client sees them."""

import asyncio
import math
from typing import Any

import pytest

from tests.e2e.client import CHAT, COMPLETIONS, chat, client_of
from tests.e2e.cluster import Cluster

QUESTION = "Name an animal and say where it lives."
# Its reply is emoji on the real engine, so half characters; the scripted one repeats it.
EMOJI = "🦊" * 12


def joined_bytes(entries: list[dict[str, Any]]) -> bytes:
    """What the entries' tokens spell."""
    return bytes(byte for entry in entries for byte in entry["bytes"])


async def test_one_entry_for_each_token_in_both_modes(cluster: Cluster) -> None:
    """D4: the entries spell the text, the stream's are the whole's, and each comes with its text or after it."""
    body = chat(QUESTION, max_tokens=14, ignore_eos=True, logprobs=True, top_logprobs=3)
    async with client_of(cluster.url) as client:
        off = {**body, "logprobs": False, "top_logprobs": 0}
        whole, stream = await asyncio.gather(client.ask(CHAT, body), client.stream(CHAT, body))
        unasked = await client.ask(CHAT, off)
    entries = whole.body["choices"][0]["logprobs"]["content"]
    assert len(entries) == 14
    assert joined_bytes(entries).decode("utf-8", "replace") == whole.text == unasked.text
    assert unasked.body["choices"][0]["logprobs"] is None
    for entry in entries:
        logprobs = [top["logprob"] for top in entry["top_logprobs"]]
        assert logprobs == sorted(logprobs, reverse=True)
        assert len(logprobs) == 3
        assert entry["logprob"] <= 0
    text, told = "", []
    for event in stream.events[:-1]:
        [choice] = event["choices"]
        text += choice["delta"].get("content", "")
        told += choice["logprobs"]["content"] if choice["logprobs"] else []
        assert text.encode().startswith(joined_bytes(told)) or text.endswith("\ufffd")
    assert [entry["token"] for entry in told] == [entry["token"] for entry in entries]
    pairs = zip(told, entries, strict=True)
    assert all(math.isclose(one["logprob"], other["logprob"], abs_tol=1e-3) for one, other in pairs)


async def test_greedy_tokens_are_their_own_likeliest(cluster: Cluster) -> None:
    """At temperature 0 the chosen token leads its alternatives; the scripted engine's is among them."""
    async with client_of(cluster.url) as client:
        body = {"prompt": QUESTION, "max_tokens": 10, "ignore_eos": True, "logprobs": 2}
        logprobs = (await client.ask(COMPLETIONS, body)).body["choices"][0]["logprobs"]
    pairs = list(zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True))
    assert all(token in top for token, top in pairs)
    if cluster.kind == "real":
        assert all(token == next(iter(top)) for token, top in pairs)
        assert all(sum(math.exp(value) for value in top.values()) <= 1.001 for _, top in pairs)


async def test_half_characters_keep_their_entries(cluster: Cluster) -> None:
    """Tokens that are parts of one character: exact bytes, one entry each, offsets that never go back."""
    prompt = f"!echo {EMOJI}" if cluster.kind == "fake" else EMOJI
    async with client_of(cluster.url) as client:
        body = {"prompt": prompt, "max_tokens": 11, "ignore_eos": True, "logprobs": 0}
        whole, stream = await asyncio.gather(client.ask(COMPLETIONS, body), client.stream(COMPLETIONS, body))
    logprobs = whole.body["choices"][0]["logprobs"]
    assert [len(values) for values in logprobs.values()] == [11] * 4
    assert any(token.startswith("bytes:") for token in logprobs["tokens"])
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    frames = [event["choices"][0]["logprobs"] for event in stream.events[:-1]]
    assert [token for frame in frames if frame for token in frame["tokens"]] == logprobs["tokens"]


async def test_a_stop_cuts_the_entries_too(cluster: Cluster) -> None:
    """Those of tokens that have no text before the cut are not told."""
    async with client_of(cluster.url) as client:
        free = (await client.ask(COMPLETIONS, {"prompt": QUESTION, "max_tokens": 16, "ignore_eos": True})).text
        stop = free[len(free) // 2 :][:4]
        body = {"prompt": QUESTION, "max_tokens": 16, "ignore_eos": True, "logprobs": 0, "stop": stop}
        whole, stream = await asyncio.gather(client.ask(COMPLETIONS, body), client.stream(COMPLETIONS, body))
    logprobs = whole.body["choices"][0]["logprobs"]
    assert whole.text == free[: free.find(stop)] == stream.text
    assert all(offset < max(1, len(whole.text)) for offset in logprobs["text_offset"])
    frames = [event["choices"][0]["logprobs"] for event in stream.events[:-1]]
    assert [token for frame in frames if frame for token in frame["tokens"]] == logprobs["tokens"]


async def test_echo_repeats_the_prompt(cluster: Cluster) -> None:
    """Before the text, once, in both modes; with max_tokens 0 nothing else."""
    async with client_of(cluster.url) as client:
        body = {"prompt": QUESTION, "max_tokens": 6, "ignore_eos": True}
        plain = await client.ask(COMPLETIONS, body)
        whole = await client.ask(COMPLETIONS, {**body, "echo": True})
        stream = await client.stream(COMPLETIONS, {**body, "echo": True})
        alone = await client.ask(COMPLETIONS, {**body, "echo": True, "max_tokens": 0})
    assert whole.text == stream.text == QUESTION + plain.text
    assert whole.body["usage"] == plain.body["usage"]
    assert (alone.text, alone.completion_tokens, alone.finish_reason) == (QUESTION, 0, "length")


async def test_echo_with_logprobs_has_those_of_the_prompt(cluster: Cluster) -> None:
    """One entry per token of prompt and text in both modes, the first without a number."""
    async with client_of(cluster.url) as client:
        body = {"prompt": QUESTION, "max_tokens": 6, "ignore_eos": True, "echo": True, "logprobs": 2}
        whole = await client.ask(COMPLETIONS, body)
        stream = await client.stream(COMPLETIONS, body)
    assert whole.text == stream.text
    usage, logprobs = whole.body["usage"], whole.body["choices"][0]["logprobs"]
    numbers = logprobs["token_logprobs"]
    assert len(numbers) == len(logprobs["tokens"]) == usage["total_tokens"]
    assert numbers[0] is None
    assert all(number <= 0 for number in numbers[1:])
    frames = [event["choices"][0]["logprobs"] for event in stream.events[:-1]]
    streamed = [number for frame in frames if frame for number in frame["token_logprobs"]]
    # Beside other work the forward may round differently.
    assert streamed[1:] == pytest.approx(numbers[1:], abs=1e-3)


async def test_best_of_is_the_likeliest_of_its_rows(cluster: Cluster) -> None:
    """By mean log-probability, as the same rows tell it under n."""
    body = {"prompt": QUESTION, "max_tokens": 6, "ignore_eos": True, "temperature": 1, "seed": 5}
    async with client_of(cluster.url) as client:
        best = await client.ask(COMPLETIONS, {**body, "best_of": 3})
        rows = (await client.ask(COMPLETIONS, {**body, "n": 3, "logprobs": 0})).body["choices"]
    means = [sum(row["logprobs"]["token_logprobs"]) / len(row["logprobs"]["tokens"]) for row in rows]
    assert best.text == rows[means.index(max(means))]["text"]
    assert (len(best.body["choices"]), best.completion_tokens) == (1, 18)


async def test_every_mix_of_sampling_is_what_it_is_alone(cluster: Cluster) -> None:
    """D1, D2: eight requests with different settings at once; each has the text it has by itself."""
    mixes: list[dict[str, Any]] = [
        {"temperature": 0},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1, "top_k": 40},
        {"temperature": 1.2, "min_p": 0.1, "top_k": -1},
        {"temperature": 1, "repetition_penalty": 1.2, "repetition_context_size": 30},
        {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": -0.5},
        {"temperature": 0, "logit_bias": {"260": -100}, "bad_words": ["the", "a"]},
        {"temperature": 1, "xtc_probability": 0.5, "xtc_threshold": 0.1, "min_tokens": 4},
    ]
    bodies = [chat(QUESTION, max_tokens=7, seed=40 + index, **mix) for index, mix in enumerate(mixes)]
    async with client_of(cluster.url) as client:
        together = await asyncio.gather(*(client.ask(CHAT, body) for body in bodies))
        alone = [await client.ask(CHAT, body) for body in bodies]
    assert [reply.status for reply in together] == [200] * 8
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    if cluster.kind == "real":
        assert not {"the", "a"} & set(together[6].text.split())


async def test_allowed_tokens_are_the_only_ones(cluster: Cluster) -> None:
    """Two tokens allowed: nothing else comes up, hot or not."""
    async with client_of(cluster.url) as client:
        asked = {"prompt": "x", "max_tokens": 8, "logprobs": 0, "return_tokens_as_token_ids": True, "ignore_eos": True}
        body = {**asked, "temperature": 2, "seed": 1, "allowed_token_ids": [100, 101]}
        tokens = (await client.ask(COMPLETIONS, body)).body["choices"][0]["logprobs"]["tokens"]
    assert len(tokens) == 8
    if cluster.kind == "real":
        assert set(tokens) <= {"token_id:100", "token_id:101"}
