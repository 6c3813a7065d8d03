"""D1 to D6 at once: whatever decodes beside a row, and however often it moves, it tells what it tells alone.

Rows of random settings, with grammars, log-probabilities, siblings and replays, join, are cancelled and leave, in
groups that split and merge, on plain and on quantized caches.
"""

import functools
from dataclasses import dataclass
from typing import Any

import mlx.nn as nn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.support import probe_batching
from protocol.codec import pack_ids
from protocol.messages import Finish, Grammar, LogprobsWanted, TokenLogprobs
from protocol.sampling import Sampling
from tests.engine.sampling.test_mixes import SAMPLINGS
from tests.fakes.grammars import EOS_ID
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model, wide_headed_model

GRAMMARS = [
    Grammar(kind="json_schema", text='{"type":"object","properties":{"long_forced_name":{"type":"boolean"}}}'),
    Grammar(kind="json_schema", text='{"type":"array","items":{"type":"integer"}}'),
    Grammar(kind="regex", text="[a-z ]{3,30}[0-9]*"),
    Grammar(kind="choice", text='["yes","no","perhaps it is so and perhaps it is not"]'),
    Grammar(kind="lark", text='start: "(" start ")" | /[0-9]+/'),
]
# So that rows of 3 and of 200 tokens go apart, and come together again.
SPLITTING_WEIGHTS_BYTES = 1 << 16
# Of sums in another order.
LOGPROB_TOLERANCE = 2e-3


@dataclass(frozen=True, slots=True)
class Case:
    """One request. joins, cancelled: turns; of several choices only the first is cancelled."""

    sampling: Sampling
    seed: int
    length: int
    joins: int
    max_tokens: int
    grammar: Grammar | None
    logprobs: LogprobsWanted | None
    choices: int
    cancelled: int | None
    generated: int
    min_tokens: int
    ignore_eos: bool

    def submits(self, name: str) -> list[dict[str, Any]]:
        """Its Submits' fields, one a choice."""
        return [
            {
                "id_": f"{name}/{choice}",
                "group": name,
                "choice": choice,
                "prompt": prompt_of(self.length, self.seed % 50),
                "sampling": self.sampling,
                "seed": self.seed + choice,
                "max_tokens": self.max_tokens,
                "grammar": self.grammar,
                "logprobs": self.logprobs,
                "min_tokens": self.min_tokens,
                "ignore_eos": self.ignore_eos,
            }
            for choice in range(self.choices)
        ]


CASES = st.builds(
    Case,
    sampling=SAMPLINGS,
    seed=st.integers(0, 2**40),
    length=st.sampled_from([1, 2, 7, 19, 40, 200]),
    joins=st.integers(0, 12),
    max_tokens=st.sampled_from([1, 2, 9, 30]),
    grammar=st.none() | st.sampled_from(GRAMMARS),
    logprobs=st.sampled_from(
        [None, None, LogprobsWanted(), LogprobsWanted(top=3), LogprobsWanted(top=1, of_prompt=True)]
    ),
    choices=st.sampled_from([1, 1, 1, 2, 3]),
    cancelled=st.sampled_from([None, None, None, 3, 6, 11]),
    generated=st.sampled_from([0, 0, 0, 2, 5]),
    min_tokens=st.sampled_from([0, 0, 4]),
    ignore_eos=st.booleans(),
)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A model and how its caches are kept."""

    model: nn.Module
    plan: CachePlan

    def driver(self, weights_bytes: int = 1 << 30) -> LoopDriver:
        """A loop with the tiny tokenizer's EOS and short chunks."""
        facts = facts_of(self.model, eos_ids=(EOS_ID,))
        return LoopDriver(self.model, facts, chunk_tokens=32, cache_plan=self.plan, weights_bytes=weights_bytes)


@functools.cache
def served(is_quantized: bool) -> Served:
    """Plain caches, or all layers at four bits."""
    if not is_quantized:
        return Served(tiny_model("llama"), DEFAULT_PLAN)
    model = wide_headed_model()
    return Served(model, probe_batching(model, 32, KvScheme("--kv-bits", every=LayerScheme(4, 32))).cache_plan)


def told_alone(model: Served, submit: dict[str, Any]) -> LoopDriver:
    """A driver in which the row ran by itself."""
    driver = model.driver()
    driver.submit(**submit)
    driver.run_until_idle()
    return driver


def logprobs_of(driver: LoopDriver, id_: str) -> list[TokenLogprobs]:
    """Of all the row's tokens."""
    return [entry for delta in driver.deltas if delta.id == id_ for entry in delta.logprobs or ()]


def how_ended(finish: Finish) -> tuple[Any, ...]:
    """All but the time it took, what others had computed, and the words of an error, which count a replay anew."""
    usage = finish.usage
    return finish.reason, finish.stop_id, finish.code, usage.prompt_tokens, usage.completion_tokens


def with_replays(model: Served, submits: list[dict[str, Any]], generated: int) -> list[dict[str, Any]]:
    """The Submits as they are sent again after so many tokens, where there were more."""
    again: list[dict[str, Any]] = []
    for submit in submits:
        tokens = told_alone(model, submit).tokens(submit["id_"])[:generated]
        is_over = len(tokens) < generated or generated >= submit["max_tokens"]
        again.append(submit if is_over else {**submit, "generated": pack_ids(tokens), "attempt": 1})
    return again


def assert_told_as_alone(together: LoopDriver, model: Served, submit: dict[str, Any], is_cancelled: bool) -> None:
    """Tokens, end and log-probabilities; of a cancelled row as far as it came."""
    id_ = submit["id_"]
    alone = told_alone(model, submit)
    tokens, expected = together.tokens(id_), alone.tokens(id_)
    if is_cancelled and together.finish(id_).reason == "cancelled":
        assert tokens == expected[: len(tokens)]
    else:
        assert tokens == expected
        assert how_ended(together.finish(id_)) == how_ended(alone.finish(id_))
    if submit["logprobs"] is not None:
        entries = logprobs_of(together, id_)
        assert len(entries) == len(tokens)
        for entry, own in zip(entries, logprobs_of(alone, id_), strict=False):
            assert entry.logprob == pytest.approx(own.logprob, abs=LOGPROB_TOLERANCE)
            assert entry.top == pytest.approx(own.top, abs=LOGPROB_TOLERANCE)


def run_together(driver: LoopDriver, cases: list[Case], submits: list[list[dict[str, Any]]]) -> None:
    """Each request joins at its turn, and its first choice is cancelled at its own."""
    for turn in range(max(max(case.joins, case.cancelled or 0) for case in cases) + 1):
        for case, choices in zip(cases, submits, strict=True):
            if case.joins == turn:
                for submit in choices:
                    driver.submit(**submit)
            if case.cancelled == turn and case.joins <= turn:
                driver.cancel(choices[0]["id_"])
        driver.turn()
    driver.run_until_idle()


@pytest.mark.parametrize("is_quantized", [False, True], ids=["plain", "quantized"])
@settings(max_examples=12, deadline=None)
@given(cases=st.lists(CASES, min_size=2, max_size=5), is_split=st.booleans())
def test_every_row_tells_what_it_tells_alone(is_quantized: bool, cases: list[Case], is_split: bool) -> None:
    """The same tokens, end, counts and log-probabilities, for every row, in whatever company."""
    model = served(is_quantized)
    driver = model.driver(SPLITTING_WEIGHTS_BYTES if is_split else 1 << 30)
    submits = [with_replays(model, case.submits(str(index)), case.generated) for index, case in enumerate(cases)]
    run_together(driver, cases, submits)
    assert driver.mailbox.rejected == {}
    for case, choices in zip(cases, submits, strict=True):
        for submit in choices:
            is_cancelled = case.cancelled is not None and submit["choice"] == 0
            assert_told_as_alone(driver, model, submit, is_cancelled)
