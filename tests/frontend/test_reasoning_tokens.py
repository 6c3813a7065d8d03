"""How many tokens the reasoning took, in each dialect's words, streamed and whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes.serving import Served, serving, told_usages

THINKING: Final = {"reasoning_parser": "think"}
CHAT: Final = "/v1/chat/completions"
STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}
REPLIES: Final = {
    "none": "It rains in Oslo.",
    "some": "<think>Two cities, and one of them is Oslo.</think>It rains.",
    "late": "Well, <think>let me see:</think> it rains.",
    "twice": "<think>Two cities.</think>One. <think>And more?</think>Two.",
    "a part of a mark": "<thi it rains.",
    "behind white space": "\n  \n<think>Two cities.</think>One.",
    "nothing else": "<think>Two cities.</think>",
    "cut": "<think>Two cities, and no end",
}
ROUTES: Final[dict[str, tuple[str, Callable[[str], dict[str, Any]], Callable[[Any], int]]]] = {
    "chat": (
        CHAT,
        lambda text: {"messages": [{"role": "user", "content": f"!echo {text}"}]},
        lambda usage: usage["completion_tokens_details"]["reasoning_tokens"],
    ),
    "responses": (
        "/v1/responses",
        lambda text: {"input": f"!echo {text}"},
        lambda usage: usage["output_tokens_details"]["reasoning_tokens"],
    ),
    "messages": (
        "/v1/messages",
        lambda text: {"messages": [{"role": "user", "content": f"!echo {text}"}]},
        lambda usage: usage["output_tokens_details"]["thinking_tokens"],
    ),
}


def taken(served: Served, text: str) -> int:
    """The tokens that spell a character of the thought that a reply begins with, or of its marks; another is text."""
    if not text.lstrip().startswith("<think>"):
        return 0
    begin = text.find("<think>")
    end = text.find("</think>") + len("</think>") if "</think>" in text else len(text)
    offsets: list[tuple[int, int]] = served.engine.tokenizer.encode(text, add_special_tokens=False).offsets
    return sum(start < end and stop > begin for start, stop in offsets)


async def told(served: Served, path: str, body: dict[str, Any]) -> tuple[Any, Any]:
    """The usage of a whole reply, and the last one of its stream."""
    status, whole = await served.answer(path, body)
    assert status == 200, whole
    more = STREAMED if path == CHAT else {"stream": True}
    async with await served.post(path, {**body, **more}) as response:
        return whole["usage"], told_usages(await response.read())[-1]


@pytest.mark.parametrize("route", ROUTES)
async def test_the_count_is_that_of_the_thoughts_tokens(runtime_dir: Path, route: str) -> None:
    """With those that begin and end it; however the reply goes on."""
    path, body_of, count_of = ROUTES[route]
    async with serving(runtime_dir, THINKING) as served:
        for text in REPLIES.values():
            for usage in await told(served, path, body_of(text)):
                assert count_of(usage) == taken(served, text), text
