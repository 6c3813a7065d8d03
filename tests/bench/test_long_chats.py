"""bench.long_chats: bodies are as long as they say, and each is one that its route takes."""

import json
from pathlib import Path

import pytest

from bench.long_chats import TURNS, long_chats, prose
from tests.fakes.serving import serving

NAMES = [chat.name for chat in long_chats(1_000)]


@pytest.mark.parametrize("characters", [1, 1_000, 100_000])
def test_prose_has_its_length(characters: int) -> None:
    """And no stretch of it comes twice."""
    text = prose(characters)
    assert len(text) == characters
    stretches = [text[at : at + 400] for at in range(0, characters, 400)]
    assert len(stretches) == len(set(stretches))


def test_a_conversation_has_its_turns() -> None:
    """The user speaks first and last."""
    (chat,) = [chat for chat in long_chats(50_000) if chat.name == "chat, 500 turns"]
    roles = [message["role"] for message in json.loads(chat.body)["messages"]]
    assert len(roles) == TURNS + 1
    assert (roles[0], roles[1], roles[-1]) == ("user", "assistant", "user")


@pytest.mark.parametrize("name", NAMES)
async def test_each_is_answered(runtime_dir: Path, name: str) -> None:
    """By the route it names."""
    (chat,) = [chat for chat in long_chats(1_000) if chat.name == name]
    async with (
        serving(runtime_dir, context_length=200_000, prefill_tokens_per_turn=200_000) as served,
        await served.post(chat.path, chat.body) as response,
    ):
        assert response.status == 200, await response.read()
