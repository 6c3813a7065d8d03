"""Peak memory of joins, leaves and conversions: what exists twice at a time is one layer, never the whole cache."""

import functools
import gc
from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from engine import decode, prefill
from engine.batch import Batch, Group
from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.support import probe_batching
from engine.row import Row, RowKey, make_row
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from tests.fakes.loop_driver import EPOCH, facts_of
from tests.parity.architectures import random_model

# Long enough for caches to outweigh whatever else a step of these models needs.
TOKENS = 4_000
CHUNK_TOKENS = 250
# All layers at once would be three or four times a layer more than a layer.
MOST_LAYERS = 1.5
# Registers, offsets and the like, of which more or fewer happen to be there at the peak.
SMALL_BYTES = 1 << 16


def _plan(name: str, bits: int | None) -> CachePlan:
    if bits is None:
        return DEFAULT_PLAN
    return probe_batching(random_model(name), 32, KvScheme("--kv-bits", every=LayerScheme(bits, 32))).cache_plan


class _Rows:
    """Rows of TOKENS tokens on one model, joined and stepped by hand; their caches hold noise."""

    def __init__(self, name: str, plan: CachePlan) -> None:
        self.model = random_model(name)
        self.plan = plan
        self.kinds = plan.kinds(self.model)
        # So heavy that rows share one group.
        self.batch = Batch(self.kinds, 1 << 50)
        self._heads = 1 if name == "gemma3_text" else 2
        self._made = 0

    def new_row(self) -> Row:
        """Nothing of it is prefilled."""
        self._made += 1
        prompt = TokenPrompt(ids=pack_ids([5] * TOKENS))
        submit = Submit(epoch=EPOCH, id=SubmitId(str(self._made)), group="g", model="m", prompt=prompt)
        facts = facts_of(self.model, context_length=2 * TOKENS)
        return make_row(RowKey(b"client", submit.id), submit, facts, 0.0)

    def row(self) -> Row:
        """A prefilled one, not converted yet."""
        row = self.new_row()
        row.caches = make_prompt_cache(self.model)
        row.prefilled = TOKENS
        for cache in row.caches:
            for _ in range(0, TOKENS, CHUNK_TOKENS):
                keys = mx.random.normal((1, self._heads, CHUNK_TOKENS, 32))
                cache.update_and_fetch(keys, keys + 1)
                mx.eval(cache.state[:2])
        return row

    def group(self) -> Group:
        """Of one row, converted as the plan says."""
        row = self.row()
        assert row.caches is not None
        prefill.quantize(self.plan, row.caches, TOKENS)
        return Group.of_one(self.kinds, row, 5)

    def step(self) -> None:
        """One decode step."""
        for group in self.batch.groups:
            group.register = decode.launch_sample(decode.launch_forward(self.model, group), group)
            mx.eval(group.register)

    @property
    def layer_bytes(self) -> int:
        """Of the largest layer now."""
        return max(cache.nbytes for group in self.batch.groups for cache in group.caches)


class _Memory(NamedTuple):
    """Of some work, in bytes: held before and after, and the most in between."""

    before: int
    after: int
    peak: int

    @property
    def transient(self) -> int:
        """What was needed for the while."""
        return self.peak - max(self.before, self.after)


def _measured(work: Callable[[], object]) -> _Memory:
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    work()
    peak = mx.get_peak_memory()
    gc.collect()
    return _Memory(before, mx.get_active_memory(), peak)


@pytest.mark.parametrize(("name", "bits"), [("llama", None), ("gemma3_text", None), ("llama", 8)])
def test_joins_and_leaves_have_one_layer_twice(name: str, bits: int | None) -> None:
    """B16: merge, extend, filter and the last row's return, each with its next step; the ledger covers all of it."""
    rows = _Rows(name, _plan(name, bits))
    others = mx.get_active_memory()
    joiners = [[rows.group() for _ in range(3)], [rows.group()]]

    def join() -> None:
        rows.batch.join(joiners.pop(0))
        rows.step()

    def leave() -> None:
        leaver = next(iter(rows.batch))
        for group in rows.batch.groups:
            group.leave([leaver])
        rows.batch.rearrange()
        rows.step()

    _measured(join)
    for work in (join, leave, leave, leave):
        layer_bytes = rows.layer_bytes
        steps = [_measured(rows.step).transient]
        memory = _measured(work)
        steps.append(_measured(rows.step).transient)
        assert memory.transient - max(steps) <= MOST_LAYERS * max(layer_bytes, rows.layer_bytes)
        if work is join:
            assert memory.peak - max(steps) - others <= rows.batch.ledger_bytes + SMALL_BYTES
    assert len(rows.batch) == 1


def test_rows_that_start_together_have_one_layer_twice() -> None:
    """The first join of several is bounded as well as a later one."""
    rows = _Rows("llama", DEFAULT_PLAN)
    others = mx.get_active_memory()
    joiners = [[rows.group() for _ in range(4)]]

    def join() -> None:
        rows.batch.join(joiners.pop())
        rows.step()

    memory = _measured(join)
    assert memory.transient <= MOST_LAYERS * rows.layer_bytes
    assert memory.peak - others - _measured(rows.step).transient <= rows.batch.ledger_bytes + SMALL_BYTES


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_conversion_has_one_layer_twice(name: str) -> None:
    """C7: at a chunk's end and before the join, a row's caches become quantized one by one."""
    rows = _Rows(name, _plan(name, 8))
    row = rows.row()
    assert row.caches is not None
    memory = _measured(functools.partial(prefill.quantize, rows.plan, row.caches, TOKENS))
    largest = max(cache.nbytes for cache in row.caches)
    assert 0 < memory.transient <= MOST_LAYERS * largest
    assert memory.after < memory.before


def test_a_lone_row_is_charged_what_it_holds() -> None:
    """A chunk leaves a ring wider than its window, and mlx-lm's chunked cache grows in steps of its own."""
    for name in ("gemma3_text", "llama4"):
        rows = _Rows(name, DEFAULT_PLAN)
        rows.batch.join([rows.group()])
        assert rows.batch.allocated_bytes <= rows.batch.ledger_bytes


@pytest.mark.parametrize("name", ["mamba2", "falcon_h1", "lfm2"])
def test_a_chunk_leaves_its_states_alone(name: str) -> None:
    """E3: states are slices of what a chunk computed; of that nothing else stays."""
    rows = _Rows(name, DEFAULT_PLAN)
    row = rows.new_row()
    row.caches = make_prompt_cache(rows.model)

    def chunk() -> None:
        assert row.caches is not None
        prefill.launch_chunk(rows.model, row, 1_000)
        prefill.wait_for_chunk(row.caches)

    memory = _measured(chunk)
    assert memory.after - memory.before <= sum(cache.nbytes for cache in row.caches) + SMALL_BYTES
