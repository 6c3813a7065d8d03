"""Rows whose grammars take too long to compile are told so, and what nobody waits for is not compiled."""

from concurrent.futures import Future

import pytest

from engine import intake
from engine.sampling.grammar import CompiledGrammar, GrammarCompiler
from protocol.errors import ErrorCode
from protocol.messages import Grammar, SubmitId
from tests.fakes.grammars import EOS_ID, grammar_tokenizer
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model

GRAMMAR = Grammar(kind="regex", text="a")


class StuckCompiler(GrammarCompiler):
    """Compiles nothing."""

    def __init__(self) -> None:
        super().__init__(grammar_tokenizer())
        self.futures: dict[Grammar, CompiledGrammar] = {}

    def start(self, grammar: Grammar) -> CompiledGrammar:
        return self.futures.setdefault(grammar, Future())


@pytest.fixture
def stuck() -> StuckCompiler:
    return StuckCompiler()


@pytest.fixture
def stuck_driver(stuck: StuckCompiler) -> LoopDriver:
    model = tiny_model("llama")
    return LoopDriver(model, facts_of(model, eos_ids=(EOS_ID,)), grammars=stuck)


@pytest.mark.parametrize(("is_begun", "code"), [(True, ErrorCode.INVALID_REQUEST), (False, ErrorCode.QUEUE_FULL)])
def test_a_grammar_that_takes_too_long(
    stuck: StuckCompiler,
    stuck_driver: LoopDriver,
    monkeypatch: pytest.MonkeyPatch,
    is_begun: bool,
    code: ErrorCode,
) -> None:
    """400 when it is this grammar that takes long, 429 when it is those before it; the free row does not notice."""
    stuck_driver.submit("a", prompt_of(5), grammar=GRAMMAR)
    stuck_driver.submit("free", prompt_of(5), max_tokens=3)
    stuck_driver.loop.turn()
    assert SubmitId("a") not in stuck_driver.mailbox.rejected
    if is_begun:
        stuck.futures[GRAMMAR].set_running_or_notify_cancel()
    monkeypatch.setattr(intake, "MAX_COMPILE_S", -1.0)
    for _ in range(5):
        stuck_driver.loop.turn()
    assert stuck_driver.mailbox.rejected[SubmitId("a")].code == code
    assert stuck_driver.finish("free").reason == "length"
    assert stuck_driver.live_ids() == []


def test_what_nobody_waits_for_is_not_compiled(stuck: StuckCompiler, stuck_driver: LoopDriver) -> None:
    """Its compilation is cancelled with the last row that wants it."""
    for id_ in ("a", "b"):
        stuck_driver.submit(id_, prompt_of(5), grammar=GRAMMAR)
    stuck_driver.loop.turn()
    stuck_driver.cancel("a")
    stuck_driver.loop.turn()
    assert not stuck.futures[GRAMMAR].cancelled()
    stuck_driver.cancel("b")
    stuck_driver.loop.turn()
    assert stuck.futures[GRAMMAR].cancelled()


def test_a_cancelled_compilation_is_begun_again() -> None:
    """The next row that sends it gets its own."""
    compiler = GrammarCompiler(grammar_tokenizer())
    cancelled: CompiledGrammar = Future()
    cancelled.cancel()
    compiler._compiled[GRAMMAR] = cancelled
    again = compiler.start(GRAMMAR)
    assert again is not cancelled
    assert again.exception(timeout=30) is None
    compiler.close()
