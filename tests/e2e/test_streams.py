"""What a reply looks like, streamed and not: frames, stops, endings, characters, usage, many at once."""

import asyncio
from itertools import pairwise

import pytest

from tests.e2e.client import CHAT, COMPLETIONS, chat, client_of
from tests.e2e.cluster import MODEL_ID, Cluster
from tests.e2e.waits import no_row

QUESTION = "Tell me about a long bridge over a quiet river."
# Short answers, so that the model's own EOS comes.
SHORT_QUESTION = "What is the capital of France? Answer in one word."


@pytest.mark.parametrize("has_usage", [True, False])
async def test_frame_order_of_a_chat_stream(cluster: Cluster, has_usage: bool) -> None:
    """A1: role, content, one finish reason, usage with empty choices if wanted, [DONE]; one id throughout."""
    async with client_of(cluster.url) as client:
        body = chat(QUESTION, max_tokens=8, stream_options={"include_usage": has_usage})
        stream = await client.stream(CHAT, body)
    events = stream.events
    assert events[-1] == "[DONE]"
    if has_usage:
        assert events[-2]["choices"] == []
        assert events[-2]["usage"]["completion_tokens"] == 8
    frames = events[: -2 if has_usage else -1]
    assert all(len(frame["choices"]) == 1 for frame in frames)
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(list(frame["choices"][0]["delta"]) == ["content"] for frame in frames[1:-1])
    assert (frames[-1]["choices"][0]["delta"], stream.finish_reasons) == ({}, ["length"])
    assert {frame["object"] for frame in frames} == {"chat.completion.chunk"}
    assert len({frame["id"] for frame in events[:-1]}) == 1
    assert {frame["model"] for frame in events[:-1]} == {MODEL_ID}


async def test_stop_strings(cluster: Cluster) -> None:
    """A2: as a string, in a list, over several tokens, at the first one: cut before it, and the row leaves."""
    async with client_of(cluster.url) as client:
        free = (await client.ask(CHAT, chat(QUESTION, max_tokens=20, ignore_eos=True))).text
        middle = free[len(free) // 2 :][:6]
        lists = [[middle], ["never said", middle], [free[:2]], [free[-3:], middle]]
        bodies = [chat(QUESTION, max_tokens=100, ignore_eos=True, stop=stop) for stop in [middle, *lists[1:]]]
        wholes, streams = await asyncio.gather(
            asyncio.gather(*(client.ask(CHAT, body) for body in bodies)),
            asyncio.gather(*(client.stream(CHAT, body) for body in bodies)),
        )
    expected = [free[: min(free.find(text) for text in stops if text in free)] for stops in lists]
    assert [whole.text for whole in wholes] == expected
    assert [stream.text for stream in streams] == expected
    assert {whole.finish_reason for whole in wholes} == {"stop"}
    assert [stream.finish_reasons for stream in streams] == [["stop"]] * 4
    assert all(whole.completion_tokens <= 20 for whole in wholes)
    await no_row(cluster.url)


async def test_endings(cluster: Cluster) -> None:
    """A3, A11: EOS is no text and counts once; max_tokens is exact; an EOS on exactly the last token is `stop`."""
    async with client_of(cluster.url) as client:
        natural = await client.ask(CHAT, chat(SHORT_QUESTION))
        assert natural.finish_reason == "stop"
        assert "<|" not in natural.text
        tokens = natural.completion_tokens
        assert 2 <= tokens < 200
        exact = await client.ask(CHAT, chat(SHORT_QUESTION, max_tokens=tokens))
        assert (exact.text, exact.finish_reason, exact.completion_tokens) == (natural.text, "stop", tokens)
        short = await client.ask(CHAT, chat(SHORT_QUESTION, max_tokens=tokens - 1))
        assert (short.text, short.finish_reason, short.completion_tokens) == (natural.text, "length", tokens - 1)
        raw = await client.ask(CHAT, chat(SHORT_QUESTION, skip_special_tokens=False))
        assert raw.text == natural.text


async def test_split_characters(cluster: Cluster) -> None:
    """A4: no half character in a delta, and the joined deltas are the text that is not streamed."""
    async with client_of(cluster.url) as client:
        prompts = ["🦊" * 12, "one: é\ntwo: 数\none: é\ntwo: 数\none:"]
        bodies = [{"prompt": prompt, "max_tokens": 12, "ignore_eos": True} for prompt in prompts]
        wholes, streams = await asyncio.gather(
            asyncio.gather(*(client.ask(COMPLETIONS, body) for body in bodies)),
            asyncio.gather(*(client.stream(COMPLETIONS, body) for body in bodies)),
        )
    for whole, stream in zip(wholes, streams, strict=True):
        assert stream.text == whole.text
        assert any(ord(letter) > 127 for letter in whole.text)
        assert sum(delta.count("\ufffd") for delta in stream.deltas) == whole.text.count("\ufffd")
        assert len(stream.deltas) > 1


async def test_usage_is_the_same_in_both_modes(cluster: Cluster) -> None:
    """A11: prompt and completion tokens agree between a stream and a whole reply, and add up."""
    async with client_of(cluster.url) as client:
        body = chat(QUESTION, max_tokens=12, stream_options={"include_usage": True})
        # Under salts of their own neither finds what the other has computed.
        whole = await client.ask(CHAT, {**body, "stream_options": None, "cache_salt": "whole"})
        stream = await client.stream(CHAT, {**body, "cache_salt": "stream"})
    usage = whole.body["usage"]
    assert usage == stream.events[-2]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] <= 12
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_eight_streams_at_once(cluster: Cluster) -> None:
    """Eight clients get eight whole streams, all different, each its own text and nobody else's."""
    prompts = [f"Count from {number} and go on about the number {number * 7}." for number in range(8)]
    async with client_of(cluster.url) as client:
        bodies = [chat(prompt, max_tokens=12, ignore_eos=True) for prompt in prompts]
        streams = await asyncio.gather(*(client.stream(CHAT, body) for body in bodies))
        assert all(stream.events[-1] == "[DONE]" for stream in streams)
        assert [stream.finish_reasons for stream in streams] == [["length"]] * 8
        texts = sorted(stream.text for stream in streams)
        assert all(one != other for one, other in pairwise(texts))
        for index in (0, 7):
            assert (await client.ask(CHAT, bodies[index])).text == streams[index].text


async def test_several_prompts_are_choices(cluster: Cluster) -> None:
    """Each prompt of a completion is a choice under its index, with the text it has alone."""
    prompts = ["One fine morning", "The lorry over the bridge"]
    async with client_of(cluster.url) as client:
        reply = await client.ask(COMPLETIONS, {"prompt": prompts, "max_tokens": 10, "ignore_eos": True})
        alone = [
            await client.ask(COMPLETIONS, {"prompt": text, "max_tokens": 10, "ignore_eos": True}) for text in prompts
        ]
    assert [choice["index"] for choice in reply.body["choices"]] == [0, 1]
    assert [choice["text"] for choice in reply.body["choices"]] == [each.text for each in alone]
    assert reply.completion_tokens == 20


async def test_sixteen_answers_hold_no_other_secret(cluster: Cluster) -> None:
    """B14: sixteen prompts at once, each with a secret word of its own: no answer holds another's."""
    words = ["Amber", "Birch", "Cobalt", "Delta", "Ember", "Falcon", "Ginger", "Harbor"]
    words += ["Indigo", "Jasper", "Kestrel", "Lilac", "Magnet", "Nectar", "Onyx", "Pepper"]
    async with client_of(cluster.url) as client:
        ask = "!echo " if cluster.kind == "fake" else ""
        questions = [f"{ask}The secret word is {word}. Repeat the secret word: {word}." for word in words]
        bodies = [chat(question, max_tokens=24 if ask else 12) for question in questions]
        streams = await asyncio.gather(*(client.stream(CHAT, body) for body in bodies))
    held = [[word for word in words if word in stream.text] for stream in streams]
    assert all(found in ([], [word]) for found, word in zip(held, words, strict=True))
    assert sum(map(bool, held)) >= len(words) // 2
