"""A fault anywhere in the engine's work costs rows at most: each ends exactly once, and the next is served as ever."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from tests.fakes.models import fresh_model, prompt_of, tiny_model  # isort: skip  # before MLX

import mlx.core as mx
import mlx.nn as nn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mlx.utils import tree_map
from mlx_lm.models import llama

from engine import decode, intake, jump, loop, prefill, prefilling
from engine.admission import Admission
from engine.batch import Batch, Group
from engine.cache.full import FullKind
from engine.model.draft import DraftModel
from engine.mounts import Mounter
from engine.prefix.keeper import PrefixKeeper
from engine.retire import Roster
from engine.row import Row
from engine.sampling.grammar import RowGrammar
from engine.sampling.masks import GrammarMasks
from engine.speculate import Speculator
from protocol.errors import ErrorCode
from protocol.messages import Grammar, LogprobsWanted, SubmitId
from protocol.sampling import Sampling
from tests.fakes.grammars import EOS_ID
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.parity.oracle import solo_tokens

# What is called where, by phase: on the n-th call one of them raises.
PHASES: dict[str, tuple[Any, str]] = {
    "hear": (intake, "make_row"),
    "admit": (Row, "follow_grammar"),
    "prefill alone": (prefill, "launch_chunk"),
    "prefill together": (prefill, "launch_together"),
    "prefill, the wait": (prefill, "wait_for_chunk"),
    "prefill, the end": (prefill, "first_token"),
    "prefill, log-probabilities": (Roster, "tell_prompt"),
    "prefill, caches": (prefilling, "make_prompt_cache"),
    "prefix, what to expect": (PrefixKeeper, "expect"),
    "prefix, taken over": (PrefixKeeper, "begin"),
    "prefix, where to stop": (PrefixKeeper, "next_stop"),
    "prefix, a chunk": (PrefixKeeper, "chunk_done"),
    "prefix, proven": (PrefixKeeper, "proven"),
    "prefix, left": (PrefixKeeper, "leave"),
    "prefix, left, a copy": (prefill, "launch_copy"),
    "fork": (Group, "fork"),
    "join": (Batch, "join"),
    "join, a layer": (FullKind, "stack"),
    "join, a group": (Group, "of_parts"),
    "launch": (decode, "launch_forward"),
    "launch, a layer": (llama.TransformerBlock, "__call__"),
    "launch, on the device": (mx, "async_eval"),
    "sample": (decode, "launch_sample"),
    "sample, the rest": (decode, "launch_masked"),
    "read": (decode, "read"),
    "wait for the device": (mx, "eval"),
    "mask fill": (GrammarMasks, "_filled"),
    "mask fill, a row": (RowGrammar, "take_ahead"),
    "mask, laid over": (GrammarMasks, "laid_over"),
    "speculate": (Speculator, "can_advance"),
    "speculate, guess": (decode, "draft"),
    "speculate, check": (decode, "verify"),
    "speculate, catch up": (decode, "feed"),
    "jump": (loop, "jump_forward"),
    "jump, a chunk": (prefill, "launch_known"),
    "jump, tokens": (jump, "_forced"),
    "retire, a token": (Roster, "take_token"),
    "retire, a group": (Group, "leave"),
    "retire, a layer": (FullKind, "keep"),
    "retire, the last row's layer": (FullKind, "alone"),
    "retire, what is left": (Batch, "rearrange"),
}
FAULTS = [
    RuntimeError("[malloc] Unable to allocate 8589934592 bytes."),
    ValueError("operands could not be broadcast together"),
    AssertionError("an invariant"),
    MemoryError(),
    ValueError("\udcff"),
]
# Nothing can fail behind what it does last.
NEVER_AFTER = {"join"}
ROWS = ["guessed", "short", "other", "long", "choice 0", "choice 1", "regex", "gone", "scored", "one", "jumper"]
ROWS += ["pair 0", "pair 1"]
# Rows that one fault ends at most, where its phase is not that of a whole group.
MOST_LOST = {
    "hear": 1,
    "admit": 1,
    "prefill alone": 1,
    "prefill together": 0,
    "prefill, the wait": 1,
    "prefill, the end": 1,
    "prefill, log-probabilities": 1,
    "prefill, caches": 1,
    "prefix, what to expect": 1,
    "prefix, taken over": 1,
    "prefix, where to stop": 1,
    "prefix, a chunk": 1,
    "prefix, left": 0,
    "prefix, left, a copy": 0,
    "join": 0,
    "join, a group": 0,
    "retire, a token": 1,
    "retire, what is left": 0,
}
RECORD = '{"const": "and this is all constant, so that it can be jumped over"}'


class Ended(NamedTuple):
    """What a row was told. reason None: it was rejected."""

    tokens: list[int]
    reason: str | None
    code: ErrorCode | None


@functools.cache
def draft() -> nn.Module:
    """Right most of the time."""
    model = fresh_model("llama")
    model.update(tree_map(lambda weight: weight * 0.93, model.parameters()))
    return model


def new_driver() -> LoopDriver:
    """A loop in which all of the phases come up."""
    model = tiny_model("llama")
    speculator = Speculator(DraftModel("d", draft(), 512), 3, 16)
    # Without weights to speak of rows part into groups, which then come together again.
    return LoopDriver(
        model, facts_of(model, eos_ids=(EOS_ID,)), chunk_tokens=16, weights_bytes=6_000, speculator=speculator
    )


def play(driver: LoopDriver) -> list[str]:
    """Rows alone, together, in and out of each other's company. Returns their ids."""
    driver.submit("guessed", prompt_of(40), max_tokens=40)
    driver.turn(7)
    driver.submit("short", prompt_of(5, 1), max_tokens=5)
    driver.submit("other", prompt_of(7, 2), max_tokens=9)
    driver.submit("long", prompt_of(45, 3), max_tokens=12)
    for choice in range(2):
        hot = Sampling(temperature=1.0)
        driver.submit(f"choice {choice}", prompt_of(9, 4), group="n", choice=choice, seed=choice, sampling=hot)
    driver.turn(4)
    driver.submit("regex", prompt_of(6, 5), max_tokens=12, grammar=Grammar(kind="regex", text="[a-z ]{40}"))
    driver.submit("gone", prompt_of(6, 6), max_tokens=60)
    driver.submit("scored", prompt_of(20, 7), max_tokens=4, logprobs=LogprobsWanted(top=1, of_prompt=True))
    driver.submit("one", prompt_of(1, 8), max_tokens=3)
    driver.turn(5)
    driver.cancel("gone")
    driver.run_until_idle()
    driver.submit("jumper", prompt_of(7, 9), max_tokens=90, grammar=Grammar(kind="json_schema", text=RECORD))
    driver.run_until_idle()
    for number in range(2):
        driver.submit(f"pair {number}", prompt_of(8, 10 + number), max_tokens=4 + 5 * number)
    driver.run_until_idle()
    return ROWS


def ended(driver: LoopDriver, id_: str) -> Ended:
    """Fails unless the row has ended exactly once."""
    if id_ in driver.mailbox.rejected:
        assert [delta for delta in driver.deltas if delta.id == id_ and delta.finish] == []
        return Ended(driver.tokens(id_), None, driver.mailbox.rejected[id_].code)  # pyright: ignore[reportArgumentType]
    finish = driver.finish(id_)
    return Ended(driver.tokens(id_), finish.reason, finish.code)


@functools.cache
def undisturbed() -> dict[str, Ended]:
    """What the rows say without a fault."""
    driver = new_driver()
    return {id_: ended(driver, id_) for id_ in play(driver)}


class Injected:
    """Raises on the n-th call, once or from then on, a call that has begun its work or not."""

    def __init__(self, error: Exception, at: int, *, after: bool, lasting: bool) -> None:
        self.calls = 0
        self.raised = 0
        self._error = error
        self._at = at
        self._after = after
        self._lasting = lasting

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            is_due = self.calls == self._at or (self._lasting and self.calls > self._at)
            if is_due and not self._after:
                self._raise()
            found = original(*arguments, **named)
            if is_due:
                self._raise()
            return found

        return faulty

    def _raise(self) -> None:
        self.raised += 1
        raise self._error


@contextmanager
def injected(phase: str, fault: Injected) -> Iterator[None]:
    """The phase's function is faulty within."""
    owner, name = PHASES[phase]
    with pytest.MonkeyPatch.context() as patched:
        kept = owner.__dict__[name]
        if isinstance(kept, classmethod):
            patched.setattr(owner, name, staticmethod(fault.around(getattr(owner, name))))
        else:
            patched.setattr(owner, name, fault.around(kept))
        # These faults are rows' own, however many: what becomes of a device that is lost is test_device_lost.py's.
        patched.setattr(prefill, "forward_one", lambda _model: None)
        yield


def check(driver: LoopDriver, ids: list[str]) -> dict[str, Ended]:
    """Every row has ended once, with what it says undisturbed or the beginning of it; nothing is left behind."""
    found = {id_: ended(driver, id_) for id_ in ids}
    for id_, (tokens, reason, _) in found.items():
        usual = undisturbed()[id_]
        if reason in ("length", "stop"):
            assert found[id_] == usual
        elif id_ != "gone":
            assert tokens == usual.tokens[: len(tokens)]
    engine = driver.loop
    assert (engine._roster.rows, engine._roster.ended) == ({}, set())
    assert (len(engine._admission.waiting), engine._admission.compiling_rows) == (0, 0)
    assert (engine._prefilling.live_rows, engine._batch.groups) == (0, [])
    engine._publish()
    status = driver.board.status()
    assert (status.memory.kv_bytes, status.memory.ledger_bytes) == (0, 0)
    counters = status.counters
    ends = counters.finished + counters.cancelled + counters.failed + counters.rejected
    assert counters.submitted == ends
    return found


def serves_on(driver: LoopDriver) -> None:
    """The next requests, alone and together, get what is theirs."""
    ids = [f"after {number}" for number in range(3)]
    driver.submit(ids[0], prompt_of(40), max_tokens=20)
    driver.run_until_idle()
    for number, id_ in enumerate(ids[1:]):
        driver.submit(id_, prompt_of(5 + 2 * number, 1 + number), max_tokens=5)
    driver.run_until_idle()
    expected = [undisturbed()["guessed"].tokens[:20], undisturbed()["short"].tokens, undisturbed()["other"].tokens[:5]]
    assert expected == [driver.tokens(id_) for id_ in ids]


@pytest.mark.parametrize(("at", "after"), [(1, False), (1, True), (2, False)], ids=["first", "behind", "second"])
@pytest.mark.parametrize("phase", PHASES)
def test_one_fault_costs_rows_at_most(phase: str, at: int, after: bool) -> None:
    """In each phase, on its first call, before its work and behind it, and on its second."""
    undisturbed()
    driver = new_driver()
    fault = Injected(FAULTS[0], at, after=after and phase not in NEVER_AFTER, lasting=False)
    with injected(phase, fault):
        ids = play(driver)
    assert fault.raised == (fault.calls >= at)
    assert fault.calls > 0
    found = check(driver, ids)
    lost = [id_ for id_, row in found.items() if row.reason in ("error", None)]
    assert len(lost) <= MOST_LOST.get(phase, len(ROWS) - 1), lost
    serves_on(driver)


def trial(phase: str, at: int, error: Exception, *, after: bool, lasting: bool) -> None:
    """One run with the fault, and what must hold after it."""
    undisturbed()
    fault = Injected(error, at, after=after and phase not in NEVER_AFTER, lasting=lasting)
    driver = new_driver()
    with injected(phase, fault):
        ids = play(driver)
    check(driver, ids)
    serves_on(driver)


ANYWHERE = given(
    phase=st.sampled_from(sorted(PHASES)),
    at=st.integers(1, 40),
    after=st.booleans(),
    lasting=st.booleans(),
    error=st.sampled_from(FAULTS),
)


@settings(max_examples=40, deadline=None)
@ANYWHERE
@example(phase="launch, a layer", at=3, after=False, lasting=True, error=FAULTS[0])
@example(phase="retire, a group", at=1, after=False, lasting=True, error=FAULTS[0])
def test_no_fault_loses_a_row(phase: str, at: int, after: bool, lasting: bool, error: Exception) -> None:
    """Whatever fails, on whichever call, once or for good: each row ends once, and afterwards all is well."""
    trial(phase, at, error, after=after, lasting=lasting)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
@settings(max_examples=600, deadline=None)
@ANYWHERE
def test_no_fault_loses_a_row_at_length(phase: str, at: int, after: bool, lasting: bool, error: Exception) -> None:
    """The same, more often."""
    trial(phase, at, error, after=after, lasting=lasting)


def test_a_row_that_cannot_join_leaves_the_others_whole(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A joiner's fault ends the joiner: who runs, and who joins at the same moment, goes on."""
    original = Batch.join

    def joined(batch: Batch, joiners: list[Group]) -> None:
        if any(row.key.id == "bad" for group in joiners for row in group.rows):
            raise RuntimeError("shapes do not fit")
        original(batch, joiners)

    monkeypatch.setattr(Batch, "join", joined)
    driver.submit("running", prompt_of(9), max_tokens=20)
    driver.turn(3)
    driver.submit("good", prompt_of(200, 1), max_tokens=5)
    driver.submit("bad", prompt_of(200, 2), max_tokens=5)
    driver.run_until_idle()
    assert driver.finish("bad").code == ErrorCode.DECODE_FAILED
    for id_, prompt, count in (("running", prompt_of(9), 20), ("good", prompt_of(200, 1), 5)):
        assert driver.tokens(id_) == solo_tokens(tiny_model("llama"), prompt, count)


def test_a_command_that_fails_is_answered(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's command that meets a fault is told so, and rows go on."""

    def failing(_mounter: Mounter, _control: Any) -> None:
        raise RuntimeError("the file is no adapter")

    monkeypatch.setattr(Mounter, "obey", failing)
    driver.submit("running", prompt_of(9), max_tokens=5)
    driver.control("mount_adapter", "a=/somewhere")
    driver.run_until_idle()
    assert driver.mailbox.answers == {"mount_adapter a=/somewhere": "RuntimeError: the file is no adapter"}
    assert len(driver.tokens("running")) == 5


def test_a_submit_that_meets_a_fault_is_refused(driver: LoopDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs goes on."""
    driver.submit("a", prompt_of(9), max_tokens=20)
    driver.turn(2)

    def failing(*_: Any) -> Any:
        raise OverflowError("too large")

    monkeypatch.setattr(Admission, "check", failing)
    driver.submit("b", prompt_of(9))
    driver.run_until_idle()
    assert driver.mailbox.rejected[SubmitId("b")].code == ErrorCode.INTERNAL
    assert driver.tokens("a") == solo_tokens(tiny_model("llama"), prompt_of(9), 20)
