"""A chat of three turns over each kind of cache: what the frontend says is worth keeping is there in the next turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.dialects.base import ChatPrompt, ToolUse
from frontend.model_text import ModelText, load_model_text
from frontend.reply_form import rendered
from frontend.snapshots import snapshot_lengths
from protocol.messages import BosRule
from tests.fakes.loop_driver import OFF, LoopDriver
from tests.fakes.tokenizer_folder import CHAT_TEMPLATE, build_tokenizer_folder
from tests.fakes.tools import NOW, WEATHER
from tests.parity.architectures import VOCABULARY
from tests.parity.kinds import ALL, driver_of

CHUNK = 64
COUNT = 12
TOOLS = ToolUse(tools=(WEATHER, NOW))
SYSTEM = {"role": "system", "content": "You are terse."}
QUESTIONS = ("What is the weather in Oslo?", "And the time there?", "Thanks. Say it all again.")
TEMPLATE = "{% if tools %}<|im_start|>tools\n{{ tools | tojson }}<|im_end|>\n{% endif %}" + CHAT_TEMPLATE


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    """A small tokenizer, and a template that tells the model of tools."""
    folder = build_tokenizer_folder(tmp_path_factory.mktemp("model"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    Path(folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    return load_model_text(folder, BosRule())


def _said(driver: LoopDriver, id_: str, ids: list[int], snapshots: tuple[int, ...] = ()) -> list[int]:
    # The models know fewer tokens than the tokenizer; which ones are the same matters here, not which they are.
    driver.submit(id_, [token % VOCABULARY for token in ids], max_tokens=COUNT, snapshot_at=snapshots)
    driver.run_until_idle()
    return driver.tokens(id_)


@pytest.mark.parametrize("kind", ALL)
def test_turns_reuse_the_prompt_before_them(kind: str, text: ModelText) -> None:
    """E7: system prompt, tools, and a reply that is tokenised otherwise when it comes back; then another chat."""
    driver, plain = driver_of(kind, chunk_tokens=CHUNK), driver_of(kind, chunk_tokens=CHUNK, prefixes=OFF)
    messages: list[dict[str, Any]] = [SYSTEM]
    kept: tuple[int, ...] = ()
    before: list[int] = []
    said: list[int] = []
    is_tokenised_otherwise = False
    for turn, question in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": question})
        prompt = ChatPrompt(tuple(messages))
        ids = text.tokenizer.encode_rendered(rendered(prompt, TOOLS, text))
        is_tokenised_otherwise |= turn > 0 and ids[len(before) :][: len(said)] != said
        snapshots = snapshot_lengths(prompt, ids, TOOLS, text)
        assert len(snapshots) == 2
        said = _said(driver, f"turn{turn}", ids, snapshots)
        assert said == _said(plain, f"turn{turn}", ids)
        cached_tokens = driver.finish(f"turn{turn}").usage.cached_tokens
        assert cached_tokens >= max(kept, default=0)
        messages.append({"role": "assistant", "content": text.tokenizer.decode(said, skip_special_tokens=True)})
        kept, before = snapshots, ids
    assert is_tokenised_otherwise
    other = ChatPrompt((SYSTEM, {"role": "user", "content": "Who wrote it?"}))
    ids = text.tokenizer.encode_rendered(rendered(other, TOOLS, text))
    assert _said(driver, "other", ids) == _said(plain, "other", ids)
    assert driver.finish("other").usage.cached_tokens >= kept[0]
