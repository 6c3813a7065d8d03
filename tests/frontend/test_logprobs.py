"""Log-probabilities, echo and best_of over HTTP: both shapes, both modes, one entry for each emitted token."""

from pathlib import Path
from typing import Any

import pytest

from protocol.codec import unpack_ids
from tests.fakes.fake_logprobs import fake_logprobs
from tests.fakes.serving import Served, serving

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def tokens_of(served: Served, text: str) -> list[int]:
    return served.engine.tokenizer.encode(text, add_special_tokens=False).ids


async def test_chat_shape_in_both_modes(runtime_dir: Path) -> None:
    """OpenAI's: content entries with bytes; the stream's are the whole's, each in a frame with text or after it."""
    async with serving(runtime_dir) as served:
        body = chat("!echo a 🦊 fox", logprobs=True, top_logprobs=2)
        _, reply = await served.answer(CHAT, body)
        entries = reply["choices"][0]["logprobs"]["content"]
        ids = tokens_of(served, "a 🦊 fox")
        assert [entry["logprob"] for entry in entries] == [fake_logprobs(id_, 0).logprob for id_ in ids]
        assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "a 🦊 fox"
        assert [len(entry["top_logprobs"]) for entry in entries] == [2] * len(ids)
        assert reply["choices"][0]["logprobs"]["refusal"] is None
        events = await served.events(CHAT, body)
        choices = [event["choices"][0] for event in events[:-1]]
        streamed = [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]
        assert streamed == entries
        assert choices[0]["logprobs"] is None
        assert choices[-1]["logprobs"] is None


async def test_unasked_is_null(runtime_dir: Path) -> None:
    """And the engine is not asked, either."""
    async with serving(runtime_dir) as served:
        _, reply = await served.answer(CHAT, chat("!echo fox", logprobs=False))
        assert reply["choices"][0]["logprobs"] is None
        assert served.engine.submits()[0].logprobs is None


async def test_no_token_is_an_empty_list(runtime_dir: Path) -> None:
    """Asked for, but the row ended at once, or was cut at its first character."""
    async with serving(runtime_dir) as served:
        for fields in ({}, {"stop": "f"}):
            text = "!echo fox" if fields else "!echo "
            _, reply = await served.answer(CHAT, chat(text, logprobs=True, **fields))
            assert reply["choices"][0]["logprobs"] == {"content": [], "refusal": None}


async def test_echo_with_logprobs_in_both_modes(runtime_dir: Path) -> None:
    """The legacy shape: prompt and text in four lists of one length, offsets into the joined text."""
    async with serving(runtime_dir) as served:
        body = {"prompt": "!echo one two", "echo": True, "logprobs": 1}
        _, reply = await served.answer(COMPLETIONS, body)
        [choice] = reply["choices"]
        logprobs = choice["logprobs"]
        assert choice["text"] == "!echo one twoone two"
        assert "".join(logprobs["tokens"]) == choice["text"]
        offsets = [sum(map(len, logprobs["tokens"][:index])) for index in range(len(logprobs["tokens"]))]
        assert logprobs["text_offset"] == offsets
        assert (logprobs["token_logprobs"][0], logprobs["top_logprobs"][0]) == (None, None)
        assert all(value is not None for value in logprobs["token_logprobs"][1:])
        assert {len(top) for top in logprobs["top_logprobs"][1:]} == {1, 2}
        events = await served.events(COMPLETIONS, body)
        streamed: dict[str, list[Any]] = {name: [] for name in logprobs}
        for event in events[:-1]:
            for name, values in (event["choices"][0]["logprobs"] or {}).items():
                streamed[name] += values
        assert streamed == logprobs


async def test_a_prompt_alone_is_scored(runtime_dir: Path) -> None:
    """What evaluation harnesses send: echo, log-probabilities and no token of the model's own."""
    async with serving(runtime_dir) as served:
        ids = [tokens_of(served, "one two"), [60, 61, 62]]
        body = {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0}
        _, reply = await served.answer(COMPLETIONS, body)
        texts = ["one two", served.engine.tokenizer.decode([60, 61, 62])]
        assert [choice["text"] for choice in reply["choices"]] == texts
        assert [choice["finish_reason"] for choice in reply["choices"]] == ["length", "length"]
        assert len(reply["choices"][1]["logprobs"]["tokens"]) == 3
        assert reply["usage"]["completion_tokens"] == 0
        assert [submit.max_tokens for submit in served.engine.submits()] == [1, 1]
        assert all(submit.logprobs is not None and submit.logprobs.of_prompt for submit in served.engine.submits())


async def test_a_long_prompts_entries_all_come(runtime_dir: Path) -> None:
    """More than one take of them, streamed in several frames, and nothing of the text is lost."""
    async with serving(runtime_dir, prefill_tokens_per_turn=1_000) as served:
        ids = [60 + number % 200 for number in range(300)]
        body = {"prompt": ids, "echo": True, "logprobs": 20, "max_tokens": 2, "ignore_eos": True}
        events = await served.events(COMPLETIONS, body)
        choices = [event["choices"][0] for event in events[:-1]]
        tokens = [token for choice in choices if choice["logprobs"] for token in choice["logprobs"]["tokens"]]
        assert len(tokens) == 302
        text = "".join(choice["text"] for choice in choices)
        assert text.startswith(served.engine.tokenizer.decode(ids[:-3]))
        assert len([choice for choice in choices if choice["logprobs"]]) > 4


@pytest.mark.parametrize("fields", [{}, {"echo": True, "logprobs": 2}])
async def test_best_of_returns_the_likeliest(runtime_dir: Path, fields: dict[str, Any]) -> None:
    """Four rows run, two come back, best first; all rows count in usage."""
    async with serving(runtime_dir) as served:
        body = {"prompt": "words", "temperature": 1, "seed": 5, "max_tokens": 9, "ignore_eos": True, **fields}
        status, best = await served.answer(COMPLETIONS, {**body, "n": 2, "best_of": 4})
        _, all_four = await served.answer(COMPLETIONS, {**body, "n": 4, "logprobs": 1, "echo": False})
        assert status == 200
        means = [sum(row["logprobs"]["token_logprobs"]) / 9 for row in all_four["choices"]]
        ranked = sorted(range(4), key=lambda index: -means[index])
        prefix = "words" if fields else ""
        texts = [prefix + all_four["choices"][index]["text"] for index in ranked]
        assert [row["text"] for row in best["choices"]] == texts[:2]
        assert [row["index"] for row in best["choices"]] == [0, 1]
        assert all((row["logprobs"] is None) == (not fields) for row in best["choices"])
        assert best["usage"]["completion_tokens"] == 36


async def test_tokens_as_ids(runtime_dir: Path) -> None:
    """vLLM's return_tokens_as_token_ids: what was emitted can be read back exactly."""
    async with serving(runtime_dir) as served:
        body = {"prompt": "!echo a 🦊 fox", "logprobs": 0, "return_tokens_as_token_ids": True}
        _, reply = await served.answer(COMPLETIONS, body)
        ids = [int(token.removeprefix("token_id:")) for token in reply["choices"][0]["logprobs"]["tokens"]]
        assert ids == tokens_of(served, "a 🦊 fox")


async def test_a_prompt_far_too_long_is_not_tokenised(runtime_dir: Path) -> None:
    """It is refused by its bytes, in a moment, with a number of tokens that it has at least."""
    async with serving(runtime_dir) as served:
        text = "fox " * 200_000
        for path, body in ((COMPLETIONS, {"prompt": text}), (CHAT, chat(text))):
            status, reply = await served.answer(path, body)
            assert (status, reply["error"]["code"]) == (400, "context_length_exceeded")
            assert "at least" in reply["error"]["message"]
        assert served.engine.submits() == []
        _, kept = await served.answer(COMPLETIONS, {"prompt": "fox " * 400, "max_tokens": 1})
        assert unpack_ids(served.engine.submits()[0].prompt.ids) == tokens_of(served, "fox " * 400)
        assert kept["usage"]["prompt_tokens"] == len(tokens_of(served, "fox " * 400))
