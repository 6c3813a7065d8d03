"""What holds for a reply holds in each dialect: the behaviours of A, one by one over all four."""

import asyncio
import re

import pytest

from tests.e2e.client import client_of
from tests.e2e.cluster import CONTEXT_TOKENS, MAX_ROWS, MODEL_ID, Cluster, cancels_of, stats
from tests.e2e.speakers import SPEAKERS, Speaker
from tests.e2e.waits import rows_are
from tests.fakes.scripts import UNREAD

QUESTION = "Tell me about a long bridge over a quiet river."
SHORT_QUESTION = "What is the capital of France? Answer in one word."

# What differs is the frontend's: the scripted engine shows it, and the real one is behind the tests of one dialect.
scripted = pytest.mark.parametrize("cluster", ["fake"], indirect=True)
each = pytest.mark.parametrize("speaker", SPEAKERS.values(), ids=SPEAKERS)


async def test_all_say_the_same(cluster: Cluster) -> None:
    """A1, A11: streamed and whole, eight at once: text, end and tokens agree, over dialects, too."""
    async with client_of(cluster.url) as client:
        fields = {"limit": 10, "temperature": 0, "ignore_eos": True}
        found = await asyncio.gather(
            *(speaker.ask(client, QUESTION, **fields) for speaker in SPEAKERS.values()),
            *(speaker.listen(client, QUESTION, **fields) for speaker in SPEAKERS.values()),
        )
    wholes, streams = found[: len(SPEAKERS)], found[len(SPEAKERS) :]
    assert [told[:3] for told in streams] == [told[:3] for told in wholes]
    assert ["".join(told.deltas) for told in streams] == [told.text for told in wholes]
    assert {(*told.ends, told.tokens[1]) for told in wholes} == {("length", 10)}
    chat, _, *others = wholes
    assert [told[:3] for told in others] == [chat[:3]] * 2


@scripted
@each
async def test_stops(cluster: Cluster, speaker: Speaker) -> None:
    """A2: in a list, over tokens, at the first: cut before it, no part of it told; below min_tokens none counts."""
    async with client_of(cluster.url) as client:
        free = (await speaker.ask(client, QUESTION, limit=20, ignore_eos=True)).text
        middle = free[len(free) // 2 :][:6]
        for stops in ([middle], ["never said", middle], [free[:2]], [free[-3:], middle]):
            expected = free[: min(free.find(stop) for stop in stops if stop in free)]
            for say in (speaker.ask, speaker.listen):
                told = await say(client, QUESTION, limit=100, ignore_eos=True, stops=stops)
                assert (told.text, told.ends) == (expected, ["stop"])
        held = await speaker.listen(client, QUESTION, limit=20, ignore_eos=True, stops=[free[:2]], min_tokens=20)
        assert (held.text, held.ends) == (free, ["length"])
    await rows_are(cluster.url, waiting=0, prefilling=0, decoding=0)


@scripted
@each
async def test_endings(cluster: Cluster, speaker: Speaker) -> None:
    """A3, A11: EOS is no text and counts once; the limit is exact; EOS on exactly the last token is a stop."""
    async with client_of(cluster.url) as client:
        natural = await speaker.ask(client, SHORT_QUESTION)
        count = natural.tokens[1]
        assert (natural.ends, "<|" in natural.text, count >= 2) == (["stop"], False, True)
        for limit, end in ((count, "stop"), (count - 1, "length")):
            for say in (speaker.ask, speaker.listen):
                told = await say(client, SHORT_QUESTION, limit=limit)
                assert (told.text, told.ends, told.tokens[1]) == (natural.text, [end], limit)


@scripted
@each
async def test_split_characters(cluster: Cluster, speaker: Speaker) -> None:
    """A4: no half character in a delta, and the deltas are the text."""
    words = "one 🦊 two é 数える"
    async with client_of(cluster.url) as client:
        told = await speaker.listen(client, f"!echo {words}", limit=60)
        assert words in told.text
        assert len(told.deltas) > 3
        assert "\ufffd" not in told.text
        assert told.text == "".join(told.deltas) == (await speaker.ask(client, f"!echo {words}", limit=60)).text


@scripted
@each
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("state", ["waiting", "prefilling", "decoding"])
async def test_a_client_that_goes(cluster: Cluster, speaker: Speaker, is_stream: bool, state: str) -> None:
    """A5: queued, while its prompt is read, and while it is answered: one Cancel, and its row is gone."""
    async with client_of(cluster.url) as client, client_of(cluster.frontends[1].url) as crowd:
        fillers = MAX_ROWS if state == "waiting" else 0
        bodies = [speaker.body(f"!linger {number}", stream=True) for number in range(fillers)]
        responses = [await crowd.begin(speaker.path, body) for body in bodies]
        await rows_are(cluster.url, decoding=fillers)
        before = stats(cluster.url)
        body = speaker.body(UNREAD if state == "prefilling" else "!linger here", stream=is_stream)
        leaver = asyncio.create_task(client.begin(speaker.path, body))
        await rows_are(cluster.url, **{state: 1})
        if leaver.done():
            leaver.result().close()
        else:
            leaver.cancel()
        await rows_are(cluster.url, waiting=0, prefilling=0, decoding=fillers)
        assert cancels_of(stats(cluster.url)) == cancels_of(before) + 1
        for response in responses:
            response.close()
        await rows_are(cluster.url, decoding=0)


@scripted
@each
async def test_the_context(cluster: Cluster, speaker: Speaker) -> None:
    """A6: left out or too large, a limit is the context's end; a prompt over it is a 400 with both numbers."""
    async with client_of(cluster.url) as client:
        prompt = "seven " * 300
        for limit in (None, 10_000):
            reply = await client.ask(speaker.path, speaker.body(prompt, limit=limit, ignore_eos=True))
            usage = reply.body["usage"]
            counted = [usage[name] for name in usage if name in ("prompt_tokens", "completion_tokens")]
            counted += [usage[name] for name in usage if name in ("input_tokens", "output_tokens")]
            assert (reply.status, sum(counted)) == (200, CONTEXT_TOKENS)
        refused = await client.ask(speaker.path, speaker.body("lorry " * 2_000, limit=5))
    assert (refused.status, speaker.code(refused)) == (400, "context_length_exceeded")
    numbers = [int(number) for number in re.findall(r"\d+", refused.body["error"]["message"])]
    assert CONTEXT_TOKENS in numbers
    assert max(numbers) > CONTEXT_TOKENS


@scripted
@each
async def test_names_and_fields(cluster: Cluster, speaker: Speaker) -> None:
    """A8, A13: served names and none; others are 404. What is unknown is named, what cannot be done a 400."""
    async with client_of(cluster.url) as client:
        for name in (None, MODEL_ID, "my-name"):
            assert (await client.ask(speaker.path, speaker.body("Hi.", limit=1, model=name))).status == 200
        lost = await client.ask(speaker.path, speaker.body("Hi.", limit=1, model="some/repository"))
        assert (lost.status, speaker.code(lost)) == (404, "model_not_found")
        assert all(name in lost.body["error"]["message"] for name in (MODEL_ID, "my-name"))
        unknown = await client.ask(speaker.path, speaker.body("Hi.", limit=1, zebra=1))
        assert (unknown.status, unknown.headers["x-convoy-ignored"]) == (200, "zebra")
        refused = await client.ask(speaker.path, speaker.body("Hi.", limit=1, typical_p=0.5))
        assert (refused.status, speaker.code(refused)) == (400, "unsupported")
        assert "typical_p" in refused.body["error"]["message"]


@scripted
@each
async def test_a_deadline(cluster: Cluster, speaker: Speaker) -> None:
    """A12: 408 when nothing was sent; in a stream an error in the dialect's words, and then nothing."""
    async with client_of(cluster.url) as client:
        reply = await client.ask(speaker.path, speaker.body(QUESTION, ignore_eos=True, timeout=0.3))
        assert (reply.status, speaker.code(reply)) == (408, "deadline_exceeded")
        raw = await client.late_stream(speaker.path, speaker.body(QUESTION, ignore_eos=True))
    *_, last = raw.removesuffix(b"\n\n").split(b"\n\n")
    assert b"timeout" in last
    assert b"error" in last
    assert not any(word in raw for word in (b"[DONE]", b'finish_reason":"', b"message_stop", b"response.completed"))
