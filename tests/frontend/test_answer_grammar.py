"""An answer in its format behind a thought, and beside calls: as agents ask that end with a structured answer."""

from pathlib import Path
from typing import Any

import pytest

from frontend.dialects.base import ChatPrompt, Constraint, Generation, ToolUse
from frontend.errors import RequestError
from frontend.model_text import ModelText, load_model_text
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.reply_form import constrained
from frontend.text.structure import ReplyForm
from protocol.messages import BosRule, Grammar
from tests.fakes.grammars import takes
from tests.fakes.tokenizer_folder import build_tokenizer_folder
from tests.fakes.tools import NOW, WEATHER

HERMES, THINK = TOOL_FORMATS["hermes"], REASONING_FORMATS["think"]
TOOLS = {tool.name: tool for tool in (NOW, WEATHER)}
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SCHEMA = Constraint("response_format", Grammar(kind="json_schema", text='{"type":"object","required":["a"]}'))
LARK = Constraint("guided_grammar", Grammar(kind="lark", text='start: "a"'))
ANSWERS = [
    ("json_object", "", '{"b":[1]}'),
    ("json_schema", SCHEMA.grammar.text, '{"a":1}'),
    ("json_schema", "true", "[1]"),
    ("choice", '["yes","no \\"x\\""]', 'no "x"'),
    ("regex", r"a/b\d+", "a/b12"),
]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelText:
    """Any model: the grammars here have no tokens of their own."""
    return load_model_text(build_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")), BosRule())


def asked(constraint: Constraint, choice: Any = None) -> Generation:
    """A chat with this constraint, and with tools if there is a choice."""
    use = None if choice is None else ToolUse(tools=tuple(TOOLS.values()), choice=choice)
    return Generation(model=None, prompts=(ChatPrompt(()),), constraint=constraint, tools=use)


def fits(generation: Generation, form: ReplyForm, text: ModelText, reply: str) -> bool:
    """Whether a reply fits what is sent to the engine."""
    constraint = constrained(generation, form, text).constraint
    assert constraint is not None
    return takes(constraint.grammar.kind, constraint.grammar.text, reply)


@pytest.mark.parametrize(("kind", "content", "answer"), ANSWERS)
def test_a_model_may_think_before_its_answer(text: ModelText, kind: Any, content: str, answer: str) -> None:
    """It must, where the prompt has opened reasoning: all of an answer would be read as part of it."""
    generation = asked(Constraint("response_format", Grammar(kind=kind, text=content)))
    opened = ReplyForm(reasoning=THINK, is_in_reasoning=True)
    assert fits(generation, opened, text, f"hm {{</think>\n\n{answer}")
    assert not fits(generation, opened, text, answer)
    closed = ReplyForm(reasoning=THINK)
    assert fits(generation, closed, text, answer)
    assert fits(generation, closed, text, f"<think>hm</think>{answer}")
    assert not fits(generation, closed, text, f"hm {answer}")


@pytest.mark.parametrize(("kind", "content", "answer"), ANSWERS)
def test_an_answer_or_calls(text: ModelText, kind: Any, content: str, answer: str) -> None:
    """And nothing else; the error of one that does not compile names the answer's field."""
    generation = asked(Constraint("response_format", Grammar(kind=kind, text=content)), "auto")
    form = ReplyForm(call_format=HERMES, tools=TOOLS)
    assert fits(generation, form, text, answer)
    assert fits(generation, form, text, f"{CALL}\n{CALL}")
    assert not fits(generation, form, text, "free text")
    constraint = constrained(generation, form, text).constraint
    assert constraint is not None
    assert constraint.field == "response_format"


def test_a_reply_that_must_call_has_no_other_format(text: ModelText) -> None:
    """A later turn answers in it."""
    form = ReplyForm(call_format=HERMES, tools=TOOLS)
    assert fits(asked(SCHEMA, "required"), form, text, CALL)
    assert not fits(asked(SCHEMA, "required"), form, text, '{"a":1}')


def test_a_model_that_does_not_think_is_held_as_asked(text: ModelText) -> None:
    """The engine gets the constraint as it came."""
    assert constrained(asked(SCHEMA), ReplyForm(), text).constraint == SCHEMA
    assert constrained(asked(LARK), ReplyForm(reasoning=THINK), text).constraint == LARK


@pytest.mark.parametrize(
    ("choice", "form"),
    [
        (None, ReplyForm(reasoning=THINK, is_in_reasoning=True)),
        ("auto", ReplyForm(call_format=HERMES, tools=TOOLS)),
    ],
)
def test_a_grammar_of_its_own_stands_alone(text: ModelText, choice: Any, form: ReplyForm) -> None:
    """It has a rule `start`, which nothing can come before or beside."""
    with pytest.raises(RequestError, match="a grammar of its own") as caught:
        constrained(asked(LARK, choice), form, text)
    assert caught.value.param == "guided_grammar"


def test_messages_with_headers_take_no_answer_beside_calls(text: ModelText, tmp_path: Path) -> None:
    """Refused by the answer's field; without tools the answer is held from its first token."""
    harmony = ReplyForm(call_format=TOOL_FORMATS["harmony"], tools=TOOLS, reasoning=REASONING_FORMATS["harmony"])
    with pytest.raises(RequestError, match="harmony") as caught:
        constrained(asked(SCHEMA, "auto"), harmony, text)
    assert caught.value.param == "response_format"
    alone = ReplyForm(reasoning=REASONING_FORMATS["harmony"])
    assert constrained(asked(SCHEMA), alone, text).constraint == SCHEMA
