"""Formats whose marks are special tokens, through a tokenizer: seen by the text machine, never told to a client."""

import json
import re
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from frontend.dialects.base import ChatPrompt, Generation, ToolUse
from frontend.model_text import ModelText, load_model_text
from frontend.parsers.registry import TOOL_FORMATS
from frontend.reply_form import reply_form
from frontend.text.pipeline import TextOptions, TextPipeline
from protocol.messages import BosRule
from tests.fakes.tokenizer_folder import build_tokenizer_folder
from tests.frontend.parsers.generated_calls import TOOLS, Call, calls_of, templates, written
from tests.frontend.parsers.golden_cases import Told, spelled

TEMPLATES = templates()
CALLS = [Call("now", {}), Call("write-file", {"path": "a/b", "content": "x\n😀"})]
THOUGHT = "I need it."
MARK = re.compile(r"</?[|｜]?[\w:｜▁ ]+[|｜]?>|\[/?[A-Z]+\]|<\|\"\|>|◁/?think▷")


def model(folder: Path, name: str, text: str) -> ModelText:
    """A model with the template, in whose vocabulary each mark of the text is one special token."""
    build_tokenizer_folder(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in sorted(set(MARK.findall(text)))])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATES[name]}))
    return load_model_text(folder, BosRule())


def read(loaded: ModelText, text: str) -> Told:
    """What a chat with tools is told of a reply of this text, a token at a time."""
    prompt = ChatPrompt(({"role": "user", "content": "x"},))
    generation = Generation(model=None, prompts=(prompt,), tools=ToolUse(tools=tuple(TOOLS.values())))
    pipeline = TextPipeline(loaded.tokenizer, TextOptions(), reply_form(generation, [], loaded))
    outputs = [pipeline.feed([id_]) for id_ in loaded.tokenizer.encode_rendered(text)] + [pipeline.finish()]
    told: Told = []
    for kind, piece in (spelled(told.piece) for output in outputs for told in output.pieces):
        if told and told[-1][0] == kind and kind != "call":
            told[-1][1] += piece
        else:
            told.append([kind, piece])
    return told


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) & set(TOOL_FORMATS)))
def test_calls_are_read_and_marks_are_not_told(name: str, tmp_path: Path) -> None:
    """Whether a mark is a token or spelled out is the model's affair."""
    text = written(TEMPLATES[name], CALLS, reasoning_content=THOUGHT)
    told = read(model(tmp_path, name, text), text)
    assert [piece for kind, piece in told if kind == "reasoning"] == ([THOUGHT] if THOUGHT in text else [])
    assert "".join(piece for kind, piece in told if kind == "text").strip() == ""
    assert calls_of([piece for piece in told if piece[0] not in ("reasoning", "text")]) == CALLS


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_an_answer_is_told_without_marks(name: str, tmp_path: Path) -> None:
    """Also with reasoning before it."""
    text = written(TEMPLATES[name], [], content="Hello!", reasoning_content=THOUGHT)
    told = read(model(tmp_path, name, text), text)
    assert "".join(piece for kind, piece in told if kind == "text").strip() == "Hello!"
    assert {kind for kind, _ in told} <= {"text", "reasoning"}
