"""D6, D7: rows with grammars in the loop, beside free rows, at their ends, and when their grammar is refused."""

import json
from typing import Any

import mlx.core as mx
import msgspec
import numpy as np
import pytest

from engine import decode
from engine.sampling.masks import GrammarMasks
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import Grammar, GrammarKind, SubmitId
from protocol.sampling import Sampling
from tests.fakes.grammars import EOS_ID, compiled, text_of, token_ids
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "alive": {"type": "boolean"}},
        "required": ["name", "alive"],
        "additionalProperties": False,
    }
)
HOT = Sampling(temperature=1.0)


@pytest.fixture
def driver() -> LoopDriver:
    """A loop over a tiny llama with the tiny tokenizer's EOS."""
    return LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(EOS_ID,)))


def schema(text: str = PERSON) -> Grammar:
    """A JSON schema's grammar."""
    return Grammar(kind="json_schema", text=text)


def test_schema_rows_are_valid_beside_free_rows_which_do_not_change(driver: LoopDriver) -> None:
    """D6: constrained rows are valid, hot and greedy; free rows among them keep their solo tokens."""
    for index in range(3):
        driver.submit(f"free{index}", prompt_of(5 + index, index), max_tokens=40)
        settings = HOT if index else Sampling()
        driver.submit(f"schema{index}", prompt_of(4, index), max_tokens=300, grammar=schema(), sampling=settings)
    driver.run_until_idle()
    for index in range(3):
        expected = solo_tokens(tiny_model("llama"), prompt_of(5 + index, index), 40)
        assert driver.tokens(f"free{index}") == expected
        person = json.loads(text_of(driver.tokens(f"schema{index}")))
        assert set(person) == {"name", "alive"}
        assert len(person["name"]) <= 12
        assert driver.finish(f"schema{index}").reason == "stop"


def test_joiners_leave_a_running_grammar_row_valid(driver: LoopDriver) -> None:
    """D6: rows that join and leave in the middle change nothing of it: it writes what it writes alone."""
    alone = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(EOS_ID,)))
    for one in (alone, driver):
        one.submit("schema", prompt_of(6), max_tokens=200, grammar=schema(), sampling=HOT, seed=5)
        one.turn(1)
        while not one.tokens("schema"):
            one.turn()
    driver.submit("free", prompt_of(9, 1), max_tokens=4)
    driver.submit("other", prompt_of(3, 2), max_tokens=50, grammar=schema(), sampling=HOT, seed=6)
    for one in (alone, driver):
        one.run_until_idle()
    assert driver.tokens("schema") == alone.tokens("schema")
    assert driver.tokens("schema") != driver.tokens("other")
    json.loads(text_of(driver.tokens("other")))


def test_a_limit_inside_json_leaves_a_valid_prefix(driver: LoopDriver) -> None:
    """D6: max_tokens in the middle ends with `length`, and what is there still fits the grammar."""
    driver.submit("a", prompt_of(5), max_tokens=6, grammar=schema())
    driver.run_until_idle()
    assert driver.finish("a").reason == "length"
    assert len(driver.tokens("a")) == 6
    matcher = compiled("json_schema", PERSON).matcher
    assert matcher.consume_tokens(driver.tokens("a"))


def test_a_grammar_satisfied_by_the_last_token_allowed_is_a_stop(driver: LoopDriver) -> None:
    """As with an EOS on exactly the last token."""
    text = token_ids("yes")
    driver.submit("a", prompt_of(5), max_tokens=len(text), grammar=Grammar(kind="choice", text='["yes"]'))
    driver.run_until_idle()
    assert (driver.tokens("a"), driver.finish("a").reason) == (text, "stop")


@pytest.mark.parametrize("neighbours", [0, 2])
def test_a_choice_of_one_token_ends_at_once(driver: LoopDriver, events: list[str], neighbours: int) -> None:
    """D6: it is told, and finished, with its first token; EOS is neither waited for nor counted."""
    for index in range(neighbours):
        driver.submit(f"free{index}", prompt_of(6, index), max_tokens=30)
    driver.submit("one", prompt_of(5), grammar=Grammar(kind="choice", text='["t","e"]'))
    driver.run_until_idle()
    assert text_of(driver.tokens("one")) in ("t", "e")
    finish = driver.finish("one")
    assert (finish.reason, finish.stop_id, finish.usage.completion_tokens) == ("stop", None, 1)
    if not neighbours:
        assert "launch_sample" not in events


def test_a_grammar_of_the_empty_text_tells_no_token(driver: LoopDriver) -> None:
    """Nothing but an end may be written, also where EOS is to be ignored."""
    for id_, ignores in (("empty", False), ("endless", True)):
        driver.submit(id_, prompt_of(5), grammar=Grammar(kind="choice", text='[""]'), ignore_eos=ignores)
    driver.run_until_idle()
    for id_ in ("empty", "endless"):
        assert (driver.tokens(id_), driver.finish(id_).reason) == ([], "stop")


def test_the_end_of_text_comes_only_where_the_grammar_accepts(driver: LoopDriver) -> None:
    """A number may end by an EOS after any digit; ignore_eos keeps it going; min_tokens holds the end back."""
    number = Grammar(kind="regex", text="[0-9]+")
    for index in range(6):
        shared = {"grammar": number, "sampling": Sampling(temperature=3.0), "seed": index, "max_tokens": 60}
        driver.submit(f"free{index}", prompt_of(5), **shared)
        driver.submit(f"least{index}", prompt_of(5), min_tokens=25, **shared)
        driver.submit(f"endless{index}", prompt_of(5), ignore_eos=True, **shared)
    driver.run_until_idle()
    stops = [driver.finish(f"free{index}") for index in range(6)]
    assert any(finish.stop_id == EOS_ID and len(driver.tokens(f"free{i}")) < 25 for i, finish in enumerate(stops))
    for index in range(6):
        for name in ("free", "least", "endless"):
            assert text_of(driver.tokens(f"{name}{index}")).isdigit()
        assert len(driver.tokens(f"least{index}")) >= 25
        assert driver.finish(f"endless{index}").reason == "length"


def test_min_tokens_and_ignore_eos_yield_where_the_grammar_has_no_more(driver: LoopDriver) -> None:
    """A grammar wins over them: satisfied, the row ends."""
    grammar = Grammar(kind="regex", text="[ab]{3}")
    driver.submit("least", prompt_of(5), grammar=grammar, min_tokens=10)
    driver.submit("endless", prompt_of(5), grammar=grammar, ignore_eos=True)
    driver.run_until_idle()
    for id_ in ("least", "endless"):
        assert len(text_of(driver.tokens(id_))) == 3
        assert driver.finish(id_).reason == "stop"


def test_a_stop_id_ends_a_row_where_its_grammar_allows_it(driver: LoopDriver) -> None:
    """The client's own stop tokens count inside a grammar, too."""
    (comma,) = token_ids(",")
    driver.submit("a", prompt_of(5), grammar=Grammar(kind="regex", text="[0-9]{2},[0-9]+"), stop_ids=(comma,))
    driver.run_until_idle()
    assert len(text_of(driver.tokens("a"))) == 2
    assert driver.finish("a").stop_id == comma


def test_a_replayed_row_goes_on_in_its_grammar(driver: LoopDriver) -> None:
    """Its `generated` tokens are consumed again, so the rest completes the same JSON."""
    driver.submit("whole", prompt_of(5), max_tokens=200, grammar=schema(), sampling=HOT, seed=3)
    driver.run_until_idle()
    whole = driver.tokens("whole")
    driver.submit(
        "again",
        prompt_of(5),
        max_tokens=200,
        grammar=schema(),
        sampling=HOT,
        seed=3,
        generated=pack_ids(whole[:9]),
        attempt=1,
    )
    driver.run_until_idle()
    assert driver.tokens("again") == whole[9:]


@pytest.mark.parametrize(
    ("kind", "text"),
    [("json_schema", '{"type":"foo"}'), ("regex", "a(b"), ("lark", "start: foo"), ("gbnf", "root ::= foo")],
)
def test_a_grammar_that_does_not_compile_is_rejected_before_any_prefill(
    driver: LoopDriver, events: list[str], kind: GrammarKind, text: str
) -> None:
    """D7: no forward, no finish, one Rejected with the compiler's words; also when it is asked a second time."""
    for id_ in ("first", "second"):
        driver.submit(id_, prompt_of(5), grammar=Grammar(kind=kind, text=text))
        driver.run_until_idle()
        error = driver.mailbox.rejected[SubmitId(id_)]
        assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, "grammar")
        assert "foo" in error.message or "unclosed group" in error.message
    assert (events, driver.deltas) == ([], [])
    driver.loop._publish()
    counters = driver.board.status().counters
    assert (counters.submitted, counters.rejected, counters.finished, counters.failed) == (2, 2, 0, 0)


def test_a_compiling_row_lets_others_pass_and_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows behind it start; when its grammar is there, it starts before those that came later."""
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(EOS_ID,), max_rows=1))
    admission = driver.loop._admission
    monkeypatch.setattr(admission, "compiled", list)
    driver.submit("schema", prompt_of(5), grammar=schema(), max_tokens=3)
    driver.submit("free", prompt_of(5), max_tokens=3)
    driver.turn(6)
    assert driver.finish("free").reason == "length"
    assert [row.key.id for row in admission.waiting] == ["schema"]
    monkeypatch.undo()
    driver.submit("later", prompt_of(5), max_tokens=3)
    driver.run_until_idle()
    assert [delta.id for delta in driver.deltas if delta.finish] == ["free", "schema", "later"]


def test_a_loop_that_only_compiles_waits_for_mail(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not spin beside the compiler's threads; a cancelled row is gone before its grammar is there."""
    monkeypatch.setattr(driver.loop._admission, "compiled", list)
    driver.submit("schema", prompt_of(5), grammar=schema())
    driver.turn(3)
    assert all(wait_ms > 0 for wait_ms in driver.mailbox.waits_ms[1:])
    driver.cancel("schema")
    driver.turn()
    assert driver.finish("schema").reason == "cancelled"
    assert driver.loop._admission.compiling_rows == 0


def test_masks_are_filled_beside_the_forward(
    driver: LoopDriver, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a grammar: forward n built, its rows' n-1 read, masks begun, n launched, the others' read, n sampled.

    Without: sample n before the read.
    """
    for owner, name in ((GrammarMasks, "start"), (GrammarMasks, "laid_over"), (decode, "launch_logits")):
        original = getattr(owner, name)

        def recording(*arguments: Any, name: str = name, original: Any = original) -> Any:
            events.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, recording)
    driver.submit("free", prompt_of(5), max_tokens=100)
    driver.submit("number", prompt_of(5), grammar=Grammar(kind="regex", text="[0-9]{1,90}"), ignore_eos=True)
    driver.turn(3)
    events.clear()
    driver.turn(3)
    assert events == ["launch_forward", "read", "start", "launch_logits", "read", "laid_over"] * 3
    driver.cancel("number")
    driver.turn(2)
    events.clear()
    driver.turn(2)
    assert events == ["launch_forward", "launch_sample", "read"] * 2


def test_masks_come_before_penalties_and_draws(driver: LoopDriver) -> None:
    """A grammar row with every setting draws what a free row draws from the same allowed tokens."""
    settings = Sampling(temperature=1.0, top_k=20, repetition_penalty=1.6, frequency_penalty=2.0, frequency_context=0)
    words = compiled("regex", "[a-z]+").matcher.compute_bitmask()
    ids = tuple(np.flatnonzero(np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little")).tolist())
    assert len(ids) > 100
    shared = {"max_tokens": 40, "seed": 11, "ignore_eos": True}
    allowed = msgspec.structs.replace(settings, allowed_ids=ids)
    driver.submit("free", prompt_of(5), sampling=allowed, **shared)
    for index in range(5):
        driver.submit(f"greedy{index}", prompt_of(7, index), max_tokens=4 + 5 * index)
    driver.submit("grammar", prompt_of(5), sampling=settings, grammar=Grammar(kind="regex", text="[a-z]+"), **shared)
    driver.run_until_idle()
    assert driver.tokens("grammar") == driver.tokens("free")
    assert len(set(driver.tokens("grammar"))) > 20
    assert driver.tokens("greedy4") == solo_tokens(tiny_model("llama"), prompt_of(7, 4), 24)


def test_a_matcher_at_its_limit_ends_its_row_alone(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose logits are all impossible is refused by its grammar: an error, and the free row goes on."""
    original = GrammarMasks.laid_over

    def closing(masks: GrammarMasks, logits: mx.array, words: Any) -> mx.array:
        return mx.full(original(masks, logits, words).shape, -mx.inf)

    driver.submit("free", prompt_of(5), max_tokens=20)
    driver.submit("broken", prompt_of(5), grammar=Grammar(kind="regex", text="[0-9]{1,90}"))
    driver.turn(3)
    before = len(driver.tokens("broken"))
    monkeypatch.setattr(GrammarMasks, "laid_over", closing)
    driver.turn()
    monkeypatch.undo()
    driver.run_until_idle()
    finish = driver.finish("broken")
    assert (finish.reason, finish.code) == ("error", ErrorCode.DECODE_FAILED)
    assert "grammar" in finish.message
    assert len(driver.tokens("broken")) <= before + 1
    assert driver.tokens("free") == solo_tokens(tiny_model("llama"), prompt_of(5), 20)
