"""Several choices of a request over HTTP, each with its own ending, and the defaults that flags give."""

from pathlib import Path
from typing import Any

import pytest

from protocol.sampling import Sampling
from tests.fakes.deadline import until
from tests.fakes.serving import serving

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize("fields", [{}, {"temperature": 1, "seed": 7}])
async def test_n_choices_of_each_prompt(runtime_dir: Path, fields: dict[str, Any]) -> None:
    """Index is prompt times n plus choice; a prompt counts once in usage, and its rows are one group."""
    async with serving(runtime_dir) as served:
        body = {"prompt": ["one", "two"], "n": 3, "max_tokens": 12, "ignore_eos": True, **fields}
        status, reply = await served.answer(COMPLETIONS, body)
        assert (status, [choice["index"] for choice in reply["choices"]]) == (200, [0, 1, 2, 3, 4, 5])
        texts = [choice["text"] for choice in reply["choices"]]
        assert len(set(texts)) == (6 if fields else 2)
        submits = served.engine.submits()
        assert len({submit.group for submit in submits}) == 2
        usage = reply["usage"]
        prompts = [len(submit.prompt.ids) // 4 for submit in submits[::3]]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (sum(prompts), 72)
        events = await served.events(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
        assert events[-2]["usage"] == usage
        streamed = [""] * 6
        for event in events[:-2]:
            [choice] = event["choices"]
            streamed[choice["index"]] += choice["text"]
        assert streamed == texts


async def test_one_choice_stops_and_the_others_go_on(runtime_dir: Path) -> None:
    """A stop string found by one choice ends that one alone, in both modes, with one finish reason each."""
    async with serving(runtime_dir) as served:
        body = {"prompt": ["!echo one two three", "!echo two one"], "stop": "two", "n": 2}
        _, reply = await served.answer(COMPLETIONS, body)
        assert [choice["text"] for choice in reply["choices"]] == ["one ", "one ", "", ""]
        events = await served.events(COMPLETIONS, {**body, "stop": "three"})
        choices = [event["choices"][0] for event in events[:-1]]
        ends = [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]]
        assert sorted(ends) == [(0, "stop"), (1, "stop"), (2, "stop"), (3, "stop")]


async def test_one_choice_fails_alone_in_a_stream(runtime_dir: Path) -> None:
    """The others come to their ends first; then the error, and neither usage nor [DONE]."""
    async with serving(runtime_dir) as served:
        prompts = ["!fail 1", "!echo one two three four"]
        events = await served.events(COMPLETIONS, {"prompt": prompts, "stream_options": {"include_usage": True}})
        assert [event["error"]["code"] for event in events if "error" in event] == ["decode_failed"]
        assert "error" in events[-1]
        choices = [event["choices"][0] for event in events[:-1]]
        assert "".join(choice["text"] for choice in choices if choice["index"] == 1) == "one two three four"
        assert [(choice["index"], choice["finish_reason"]) for choice in choices if choice["finish_reason"]] == [
            (1, "stop")
        ]


async def test_one_choice_fails_a_whole_reply(runtime_dir: Path) -> None:
    """OpenAI's reply has no place for a failed choice: its error is the answer, and the others are cancelled."""
    async with serving(runtime_dir) as served:
        status, reply = await served.answer(COMPLETIONS, {"prompt": ["!fail 1", "!silent"]})
        assert (status, reply["error"]["code"]) == (500, "decode_failed")
        await until(lambda: not served.engine.rows.live(), "the other row is gone")
        assert [cancel.id[-2:] for cancel in served.engine.cancels()] == ["/1"]


async def test_a_refused_choice_fails_its_request_at_once(runtime_dir: Path) -> None:
    """A full queue is a 429 for the whole request, streamed or not, while a sibling choice could still run."""
    async with serving(runtime_dir, max_rows=1, max_waiting=1) as served:
        for is_stream in (True, False):
            status, reply = await served.answer(COMPLETIONS, {"prompt": ["!silent"] * 3, "stream": is_stream})
            assert (status, reply["error"]["code"]) == (429, "queue_full")


async def test_defaults_by_flag(runtime_dir: Path) -> None:
    """--temp, --top-p, --top-k, --min-p and --max-tokens count where a request says nothing."""
    flags = {"temp": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "max_tokens": 3}
    async with serving(runtime_dir, flags) as served:
        await served.answer(COMPLETIONS, {"prompt": "!count"})
        said = {"max_tokens": 4, "temperature": 0, "top_p": 1, "top_k": -1}
        await served.answer(COMPLETIONS, {"prompt": "!count", **said})
        silent, spoken = served.engine.submits()
        expected = Sampling(temperature=0.5, top_p=0.9, top_k=5, min_p=0.1)
        assert (silent.sampling, silent.max_tokens) == (expected, 3)
        assert (spoken.sampling, spoken.max_tokens) == (Sampling(min_p=0.1), 4)
