"""Grammars compile once, refuse with the compiler's words, and follow a row token by token."""

import json
import time

import pytest

from engine.errors import EngineError
from engine.sampling.grammar import MAX_CACHED, GrammarCompiler, GrammarTokenizer, row_grammar
from engine.sampling.grammar_text import MAX_TEXT_BYTES
from protocol.errors import ErrorCode
from protocol.messages import Grammar, GrammarKind
from tests.fakes.grammars import (
    EOS_ID,
    VOCABULARY_SIZE,
    compiled,
    compiler,
    grammar_tokenizer,
    takes,
    text_of,
    token_ids,
    tokenizer_json,
)

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


@pytest.mark.parametrize(
    ("kind", "grammar", "good", "bad"),
    [
        ("json_object", "", '{"a":[1,null]}', "[1]"),
        ("json_schema", PERSON, '{"name":"x","age":3}', '{"name":"x"}'),
        ("json_schema", PERSON, '{"name":"x","age":3}', '{"name": "x", "age": 3}'),
        ("json_schema", '{"x-guidance":{"lenient":true},"enum":["a",2]}', '"a"', '"b"'),
        ("regex", r"\d{3}-[a-f]+", "123-abc", "12-abc"),
        ("choice", '["yes","no","ünï\\n\\"x\\""]', 'ünï\n"x"', "maybe"),
        ("choice", '["a","ab",""]', "ab", "b"),
        ("lark", 'start: "a" b\nb: /[0-9]+/', "a12", "a"),
        ("gbnf", 'root ::= "a" [0-9]+', "a12", "a"),
    ],
)
def test_each_kind_takes_what_it_describes(kind: GrammarKind, grammar: str, good: str, bad: str) -> None:
    """All six kinds of the wire compile; JSON is compact."""
    assert takes(kind, grammar, good)
    assert not takes(kind, grammar, bad)


@pytest.mark.parametrize(
    ("kind", "grammar", "words"),
    [
        ("json_schema", "{", ["line 1", "column"]),
        ("json_schema", '{"type":"foo"}', ["Invalid type: foo"]),
        ("json_schema", '{"type":"array","uniqueItems":true}', ["uniqueItems"]),
        ("json_schema", '{"$ref":"#/definitions/gone"}', ["/definitions/gone"]),
        ("json_schema", '{"x-guidance":{"lenient":true},"not":{"type":"string"}}', ['"not"']),
        ("json_schema", '{"allOf":[{"type":"string"},{"type":"integer"}]}', ["Unsatisfiable"]),
        ("json_schema", "[" * 2_000 + "]" * 2_000, ["recursion limit"]),
        ("regex", "a(b", ["unclosed group"]),
        ("regex", "(?=a)b", ["look-around"]),
        ("choice", "[]", ["nothing to choose"]),
        ("choice", '{"a":1}', ["no JSON array of strings"]),
        ("lark", 'start: foo\nbar: "x"', ["1(8)", "unknown name"]),
        ("gbnf", 'root ::= "a" foo', ["line 1, column 14", "no rule foo"]),
        ("regex", "a" * (MAX_TEXT_BYTES + 1), [str(MAX_TEXT_BYTES)]),
    ],
)
def test_a_grammar_that_does_not_compile_is_refused_with_the_reason(
    kind: GrammarKind, grammar: str, words: list[str]
) -> None:
    """D7: the compiler's message and position, as an error of the request."""
    with pytest.raises(EngineError) as caught:
        compiled(kind, grammar)
    assert [word for word in words if word not in caught.value.message] == []
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, "grammar")
    assert len(caught.value.message) < 800


def test_a_grammar_ends_when_nothing_can_follow() -> None:
    """D6: a choice is satisfied by its last token, a number never is."""
    choice = compiled("choice", '["yes","no"]')
    *first, last = token_ids("yes")
    for token in first:
        choice.take(token)
    assert not choice.is_satisfied
    choice.take(last)
    assert choice.is_satisfied
    number = compiled("regex", "[0-9]+")
    number.take(token_ids("1")[0])
    assert not number.is_satisfied


def test_the_end_of_text_is_the_models_own() -> None:
    """The EOS of the facts is allowed where the grammar accepts, and nowhere else; llguidance's own guess is not."""
    grammar = compiled("regex", "[0-9]+")
    assert grammar.matcher.validate_tokens([EOS_ID]) == 0
    grammar.take(token_ids("1")[0])
    assert grammar.matcher.validate_tokens([EOS_ID]) == 1
    other = GrammarTokenizer.read(tokenizer_json(), VOCABULARY_SIZE, (5, 6)).trie
    assert other is not None
    assert other.eos_tokens == [5, 6]


def test_a_wrong_token_is_a_fault_of_this_row_alone() -> None:
    """The copy that erred says so; the next row of the same grammar starts afresh."""
    erring = compiled("choice", '["yes","no"]')
    assert erring.fault is None
    erring.take(token_ids("m")[0])
    assert erring.fault is not None
    assert "cannot go on" in erring.fault.message
    assert not erring.is_satisfied
    assert takes("choice", '["yes","no"]', "yes")


def test_forced_tokens_are_the_tokenizers_own() -> None:
    """What a schema prescribes is known beforehand, split as the tokenizer splits it."""
    forced = compiled("json_schema", PERSON).forced
    assert text_of(forced).startswith('{"name')
    assert forced == token_ids(text_of(forced))
    assert compiled("regex", "[ab]").forced == []


def test_a_replayed_row_takes_up_where_it_was() -> None:
    """Delivered tokens are consumed again; those that do not fit are refused."""
    future = compiler().start(Grammar(kind="json_schema", text=PERSON))
    future.exception(timeout=30)
    again = row_grammar(future, token_ids('{"name":"x",'))
    assert text_of(again.forced).startswith('"age')
    with pytest.raises(EngineError, match="delivered so far"):
        row_grammar(future, token_ids("nonsense"))


def test_a_content_is_compiled_once_and_forgotten_in_time() -> None:
    """The same content shares one compilation; the least used goes when there are too many."""
    compiler = GrammarCompiler(grammar_tokenizer())
    grammars = [Grammar(kind="regex", text=f"a{index}") for index in range(MAX_CACHED + 1)]
    first = compiler.start(grammars[0])
    for grammar in grammars[1:-1]:
        compiler.start(grammar)
    assert compiler.start(Grammar(kind="regex", text="a0")) is first
    compiler.start(grammars[-1])
    assert compiler.start(grammars[0]) is first
    assert compiler.start(Grammar(kind="choice", text="a0")) is not first
    for grammar in grammars[1:]:
        compiler.start(grammar)
    assert compiler.start(grammars[0]) is not first
    compiler.close()


def test_what_is_remembered_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few large grammars push small ones out; the newest is always kept."""
    monkeypatch.setattr("engine.sampling.grammar.MAX_CACHED_BYTES", 100)
    compiler = GrammarCompiler(grammar_tokenizer())
    small = compiler.start(Grammar(kind="regex", text="b"))
    first = compiler.start(Grammar(kind="regex", text="a" * 60))
    assert compiler.start(Grammar(kind="regex", text="b")) is small
    compiler.start(Grammar(kind="regex", text="c" * 60))
    assert compiler.start(Grammar(kind="regex", text="b")) is small
    assert compiler.start(Grammar(kind="regex", text="a" * 60)) is not first
    compiler.close()


def test_a_limit_is_the_clients_fault_and_a_wrong_token_is_not() -> None:
    """What can never work must not be tried again; a token outside of the mask is ours."""
    limited = compiled("regex", "[bc][bc][bc][bc][bc][bc]a{100000}")
    for token in token_ids("bcbcbc"):
        limited.take(token)
    limited.matcher.compute_bitmask()
    limited.take(token_ids("a")[0])
    wrong = compiled("regex", "[bc]")
    wrong.take(token_ids("a")[0])
    assert limited.fault is not None
    assert wrong.fault is not None
    assert (limited.fault.code, wrong.fault.code) == (ErrorCode.INVALID_REQUEST, ErrorCode.DECODE_FAILED)


def test_a_tokenizer_that_cannot_be_walked_takes_no_grammar() -> None:
    """The model serves everything else; a grammar is refused with the reason."""
    tokenizer = GrammarTokenizer.read(b'{"model":{}}', VOCABULARY_SIZE, (EOS_ID,))
    compiler = GrammarCompiler(tokenizer)
    with pytest.raises(EngineError, match="takes no grammar") as caught:
        compiler.start(Grammar(kind="regex", text="a"))
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "grammar")
    compiler.close()


@pytest.mark.parametrize("vocabulary_size", [VOCABULARY_SIZE + 20, VOCABULARY_SIZE - 20])
def test_logits_need_not_be_as_wide_as_the_tokenizer(vocabulary_size: int) -> None:
    """A model's embedding is often padded, and sometimes narrower than its tokenizer."""
    trie = GrammarTokenizer.read(tokenizer_json(), vocabulary_size, (EOS_ID,)).trie
    assert trie is not None
    assert trie.vocab_size == max(vocabulary_size, VOCABULARY_SIZE)


@pytest.mark.parametrize("rule", ["[a-z] | a a | a a a", "[a-z]+ | a? a?"])
def test_an_ambiguous_grammar_ends_its_row_before_it_gets_slow(rule: str) -> None:
    """Each token costs more than the one before: the row ends with a fault, after seconds at most."""
    grammar = compiled("gbnf", f"root ::= a\na ::= {rule}")
    (letter,) = token_ids("x")
    began_s = time.process_time()
    for _ in range(200):
        grammar.take(letter)
        grammar.matcher.compute_bitmask()
        if grammar.fault is not None:
            break
    assert grammar.fault is not None
    assert time.process_time() - began_s < 10


def test_a_wide_schema_is_within_the_limits() -> None:
    """Two hundred optional properties, any of which may come next."""
    schema = {"type": "object", "properties": {f"p{index}": {"type": "integer"} for index in range(200)}}
    assert takes("json_schema", json.dumps(schema), '{"p7":1,"p9":2,"other":3}')


@pytest.mark.parametrize(
    ("kind", "grammar"),
    [
        ("regex", "(a{1,1000}){1,1000}"),
        ("regex", ".*a.{200}"),
        ("lark", "start: a\na: " + '"x" a a | ' * 100 + '"x"'),
        ("lark", "start: " + "(" * 5_000 + '"a"' + ")" * 5_000),
        ("json_schema", json.dumps({"enum": [f"value {index}" for index in range(5_000)]})),
        ("json_schema", json.dumps({"type": "string", "minLength": 100_000, "maxLength": 100_005})),
    ],
    ids=["regex", "backtracking", "ambiguous", "deep", "enum", "length"],
)
def test_a_hostile_grammar_ends_in_time(kind: GrammarKind, grammar: str) -> None:
    """It compiles or is refused within seconds, and its first mask, too."""
    future = compiler().start(Grammar(kind=kind, text=grammar))
    error = future.exception(timeout=20)
    assert error is None or isinstance(error, EngineError)
