"""An answer as data: what its frames add up to, and what is sent of it later."""

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="session")

GATHER = "frames => { const reply = makeReply('m'); for (const frame of frames) addFrame(reply, frame); return reply; }"


def of(index: int = 0, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


async def test_text_and_usage(functions: Page) -> None:
    """Deltas are joined, nulls and empty frames add nothing, usage comes from the frame without choices."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    frames = [of(role="assistant", content=""), of(content="a"), of(content=None), of(content="b"), of(reason="stop")]
    reply = await functions.evaluate(GATHER, [*frames, {"choices": [], "usage": usage}])
    assert (reply["content"], reply["finish"]) == ("ab", "stop")
    assert reply["tokens"] == {"prompt": 9, "completion": 2, "cached": 4}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_both_its_names(functions: Page, field: str) -> None:
    """It is kept apart from the text, and its time ends where the text begins."""
    reply = await functions.evaluate(GATHER, [of(**{field: "hm"}), of(**{field: "m"}), of(content="x")])
    assert (reply["reasoning"], reply["content"]) == ("hmm", "x")
    assert reply["thinkingMs"] is not None


async def test_tool_calls_in_pieces(functions: Page) -> None:
    """Two calls whose pieces alternate are told apart by their index."""
    pieces = [
        {"index": 1, "id": "b", "type": "function", "function": {"name": "second", "arguments": ""}},
        {"index": 0, "id": "a", "type": "function", "function": {"name": "first", "arguments": '{"x"'}},
        {"index": 1, "function": {"arguments": "{}"}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
    reply = await functions.evaluate(GATHER, [of(tool_calls=[piece]) for piece in pieces])
    assert reply["toolCalls"] == [
        {"index": 0, "id": "a", "name": "first", "arguments": '{"x": 1}'},
        {"index": 1, "id": "b", "name": "second", "arguments": "{}"},
    ]


async def test_other_choices_are_not_mixed_in(functions: Page) -> None:
    """The page shows one answer."""
    reply = await functions.evaluate(GATHER, [of(1, content="no"), of(0, content="yes")])
    assert reply["content"] == "yes"


async def test_what_is_sent_of_a_conversation(functions: Page) -> None:
    """The system prompt leads; failed answers and reasoning stay behind; calls and their results go along."""
    call = {"index": 0, "id": "c", "name": "f", "arguments": "{}"}
    answer = {"role": "assistant", "content": "", "reasoning": "hm", "toolCalls": []}
    messages = [
        {"role": "user", "content": "one"},
        answer,
        {**answer, "content": "said"},
        {"role": "user", "content": "two"},
        {**answer, "toolCalls": [call]},
        {"role": "tool", "callId": "c", "name": "f", "content": "42"},
    ]
    told = await functions.evaluate("messages => wireMessages(messages, 'be brief')", messages)
    assert told == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "said"},
        {"role": "user", "content": "two"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "42"},
    ]
    assert (await functions.evaluate("messages => wireMessages(messages, ' ')", messages))[0]["role"] == "user"


@pytest.mark.parametrize(
    ("finish", "beat_ms", "words"),
    [
        ("stop", 0, ""),
        ("tool_calls", 0, ""),
        ("length", 0, "Cut off at the token limit."),
        ("stopped", 0, "Stopped."),
        (None, 0, "Cut off: the page was closed."),
        (None, 1e15, "Being written in another tab."),
    ],
)
async def test_an_end_that_is_not_plain_is_said(
    functions: Page, finish: str | None, beat_ms: float, words: str
) -> None:
    """Why a text ends where it does."""
    reply = {"finish": finish, "endedMs": None, "beatMs": beat_ms}
    assert await functions.evaluate("reply => endOf(reply)", reply) == words


async def test_facts_of_an_answer(functions: Page) -> None:
    """Tokens, speed from the first token to the last, time to the first, and what was reused of the prompt."""
    reply = {
        "tokens": {"prompt": 100, "completion": 41, "cached": 64},
        "startedMs": 1_000,
        "firstMs": 1_250,
        "endedMs": 3_250,
    }
    facts = await functions.evaluate("reply => factsOf(reply)", reply)
    assert facts == "41 tokens · 20 a second · first after 250 ms · 64 of 100 prompt tokens reused"
