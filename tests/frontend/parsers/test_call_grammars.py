"""The grammar of a format: it takes what the format's template writes, token by token, and nothing but calls."""

import json
import re

import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import AddedToken, Tokenizer

from bench.tiny_tokenizer import write_tiny_tokenizer
from frontend.parsers.registry import TOOL_FORMATS, Declared, formats_of
from frontend.thought_grammar import Thought
from frontend.tool_grammar import CallSetting, tool_grammar
from tests.frontend.parsers.generated_calls import TOOLS, Call, forceable, forced_text, templates

TEMPLATES = templates()
FORCED = forceable(TEMPLATES)
CALLS = [Call("mcp__files.read_2", {"path": "a/b 😀", "count": 3}), Call("now", {})]
MARK = re.compile(r"</?[|｜]?[\w:｜▁ ]+[|｜]?>")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tokenizer without any mark."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tiny_tokenizer(folder, 512)
    return (folder / "tokenizer.json").read_text(encoding="utf-8")


def takes(plain: str, marks: list[str], name: str, text: str, thought: Thought | None) -> bool:
    """Whether a forced reply of this text fits, with these marks as tokens of their own."""
    tokenizer = Tokenizer.from_str(plain)
    tokenizer.add_tokens([AddedToken(mark, special=False) for mark in marks])
    call_format = TOOL_FORMATS[name].grammar
    assert call_format is not None
    tokens = {mark: tokenizer.token_to_id(mark) for mark in marks}
    grammar = tool_grammar(
        tuple(TOOLS.values()), "required", CallSetting(call_format=call_format, thought=thought, tokens=tokens)
    )
    assert grammar is not None
    eos = json.loads(plain)["added_tokens"][0]["id"]
    matcher = LLMatcher(LLTokenizer(tokenizer.to_str(), eos_token=eos), grammar.text)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize("has_tokens", [True, False])
@pytest.mark.parametrize("name", FORCED)
def test_a_grammar_takes_what_its_template_writes(plain: str, name: str, has_tokens: bool) -> None:
    """Whether the marks are tokens or spelled; and nothing before, between or cut."""
    grammar = TOOL_FORMATS[name].grammar
    calls = CALLS[:1] if grammar is not None and grammar.is_single else CALLS
    text = forced_text(TEMPLATES[name], calls)
    marks = sorted(set(MARK.findall(text))) if has_tokens else []
    assert takes(plain, marks, name, text, None)
    assert not takes(plain, marks, name, "Well: " + text, None)
    assert not takes(plain, marks, name, text.replace("now", "nuke").replace("mcp__files.read_2", "nuke"), None)
    assert not takes(plain, marks, name, text[: len(text) // 2], None)


@pytest.mark.parametrize("name", FORCED)
def test_a_thought_may_come_first(plain: str, name: str) -> None:
    """In the marks of the template's own reasoning format."""
    reasoning = formats_of(Declared(TEMPLATES[name]), None, None).reasoning
    if reasoning is None:
        return
    text = forced_text(TEMPLATES[name], CALLS[1:])
    thought = Thought(reasoning.begins[0], reasoning.ends[0] + reasoning.behind_end)
    begin, end = thought.begin, thought.end
    marks = sorted({*MARK.findall(text), *MARK.findall(begin + end)})
    assert takes(plain, marks, name, f"{begin}\nHm.\n{end}{text}", thought)
    assert takes(plain, marks, name, f"Hm.{end}{text}", Thought(begin, end, is_open=True))
    assert not takes(plain, marks, name, text, Thought(begin, end, is_open=True))
