"""Which lengths of a chat's prompt are worth keeping: by what the template makes of the next turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.dialects.base import ChatPrompt, TextPrompt, ToolUse
from frontend.model_text import ModelText, load_model_text
from frontend.reply_form import rendered
from frontend.snapshots import snapshot_lengths
from protocol.messages import BosRule, Submit
from tests.fakes.serving import serving
from tests.fakes.tokenizer_folder import CHAT_TEMPLATE, build_tokenizer_folder
from tests.fakes.tools import NOW, WEATHER

SYSTEM = {"role": "system", "content": "You are a terse assistant with many long rules."}
USER = {"role": "user", "content": "What is the weather in Oslo?"}
TOOLS = ToolUse(tools=(WEATHER, NOW))
WITH_TOOLS = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + CHAT_TEMPLATE
# As Qwen 3 does: thoughts of earlier turns are left out once the user has spoken again.
FORGETFUL = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and loop.last %}"
    "<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
PICKY = "{% if messages | length > 2 %}{{ raise_exception('one turn only') }}{% endif %}" + CHAT_TEMPLATE
PLAIN = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"


def _model(folder: Path, template: str) -> ModelText:
    build_tokenizer_folder(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return load_model_text(folder, BosRule())


def _ids(text: ModelText, tools: ToolUse | None, *messages: dict[str, Any], **flags: Any) -> list[int]:
    return text.tokenizer.encode_rendered(rendered(ChatPrompt(messages, **flags), tools, text))


def _lengths(text: ModelText, tools: ToolUse | None, *messages: dict[str, Any], **flags: Any) -> tuple[int, ...]:
    ids = _ids(text, tools, *messages, **flags)
    return snapshot_lengths(ChatPrompt(messages, **flags), ids, tools, text)


@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("template", [CHAT_TEMPLATE, WITH_TOOLS, FORGETFUL])
@pytest.mark.parametrize("reply", ["Rain.", "\nRain", " <think>hm</think>", "äöü 🦊", ""])
def test_the_next_turn_begins_with_the_last_snapshot(
    tmp_path: Path, template: str, tools: ToolUse | None, reply: str
) -> None:
    """E7: whatever the reply was, and however it is tokenised again; the others' first snapshot is this one's."""
    text = _model(tmp_path, template)
    first = _ids(text, tools, SYSTEM, USER)
    other, after_turn = _lengths(text, tools, SYSTEM, USER)
    next_turn = (SYSTEM, USER, {"role": "assistant", "content": reply, "reasoning": "hm"}, {**USER, "content": "And?"})
    second = _ids(text, tools, *next_turn)
    assert second[:after_turn] == first[:after_turn]
    special = [at for at, id_ in enumerate(first, start=1) if id_ in text.tokenizer.special_ids]
    assert after_turn == special[-1]
    elsewhere = _ids(text, tools, SYSTEM, {**USER, "content": reply or "x"})
    assert elsewhere[:other] == first[:other]
    # All of the system prompt and the tools is in it.
    assert SYSTEM["content"] in text.tokenizer.decode(first[:other], skip_special_tokens=False)
    assert _lengths(text, tools, *next_turn)[-1] > after_turn


def test_without_a_system_prompt_the_templates_own_words_are_shared(tmp_path: Path) -> None:
    """At least the mark that opens the user's message."""
    text = _model(tmp_path, CHAT_TEMPLATE)
    assert len(_lengths(text, None, USER)) == 2


def test_a_message_that_is_continued_ends_its_turn_there(tmp_path: Path) -> None:
    """What was prefilled for the model is in the next turn's history."""
    text = _model(tmp_path, CHAT_TEMPLATE)
    begun = {"role": "assistant", "content": "It will"}
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    *_, after_turn = _lengths(text, None, SYSTEM, USER, begun, **flags)
    whole = {**begun, "content": "It will rain."}
    second = _ids(text, None, SYSTEM, USER, whole, USER)
    assert second[:after_turn] == _ids(text, None, SYSTEM, USER, begun, **flags)[:after_turn]


def test_a_template_that_takes_no_next_turn_has_none(tmp_path: Path) -> None:
    """Then only others' first turns are thought of."""
    text = _model(tmp_path, PICKY)
    assert len(_lengths(text, None, SYSTEM, USER)) == 1


def test_without_special_tokens_nothing_is_sure(tmp_path: Path) -> None:
    """A token may then reach over any place."""
    assert _lengths(_model(tmp_path, PLAIN), None, SYSTEM, USER) == ()


def test_a_completion_is_no_chat(tmp_path: Path) -> None:
    """Nobody knows what comes next."""
    text = _model(tmp_path, CHAT_TEMPLATE)
    assert snapshot_lengths(TextPrompt("Once upon a time"), [1, 2, 3], None, text) == ()


@pytest.mark.parametrize("wants_snapshots", [False, True])
async def test_they_are_sent_to_an_engine_that_wants_them(runtime_dir: Path, *, wants_snapshots: bool) -> None:
    """And to no other: they take two renderings."""
    async with serving(runtime_dir, wants_snapshots=wants_snapshots) as served:
        await served.answer("/v1/chat/completions", {"messages": [SYSTEM, USER], "n": 2, "max_tokens": 2})
        submits = [message for message in served.engine.heard if isinstance(message, Submit)]
    assert [len(submit.snapshot_at) for submit in submits] == [2 * wants_snapshots] * 2
