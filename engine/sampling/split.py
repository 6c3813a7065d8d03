"""A group some of whose rows follow grammars: they are sampled apart, under their masks.

Owns which row is sampled where, and how their tokens come together again; how each is sampled is sampler.py's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from engine.row import Row
from engine.sampling.sampler import Sampled, SamplingPlan, plan_sampling, sample


@dataclass(slots=True, eq=False)
class SplitPlan:
    """free, constrained: the rows without and with a grammar, in batch order, and their places, [F] and [C].

    free_at None: all rows are sampled as the free ones are. order: [B], where each row's token is among those of the
    free ones and then the constrained ones; None when no row is free.
    """

    free: SamplingPlan
    constrained: SamplingPlan
    free_at: mx.array | None
    constrained_at: mx.array
    order: mx.array | None


def plan_split(rows: Sequence[Row]) -> SplitPlan | None:
    """None when no row follows a grammar."""
    constrained = [place for place, row in enumerate(rows) if row.grammar is not None]
    if not constrained:
        return None
    free = [place for place, row in enumerate(rows) if row.grammar is None]
    plan = plan_sampling([rows[place] for place in free])
    sampled = range(len(rows)) if plan.is_argmax else free
    order = {place: index for index, place in enumerate(sampled)}
    order |= {place: len(sampled) + index for index, place in enumerate(constrained)}
    return SplitPlan(
        free=plan,
        constrained=plan_sampling([rows[place] for place in constrained]),
        # The argmax of all rows costs less than a copy of the free ones' logits.
        free_at=None if plan.is_argmax else mx.array(free, dtype=mx.uint32),
        constrained_at=mx.array(constrained, dtype=mx.uint32),
        order=mx.array([order[place] for place in range(len(rows))], dtype=mx.uint32) if free else None,
    )


def constrained_logits(logits: mx.array, plan: SplitPlan) -> mx.array:
    """[C, V] of logits [B, V]: of the rows in grammars. Copied late: what is masked then is still in the cache."""
    return logits if plan.order is None else logits[plan.constrained_at]


def sample_constrained(masked: mx.array, plan: SplitPlan, inputs: mx.array) -> Sampled:
    """The tokens of the rows that follow grammars, [C]. masked: [C, V], their logits under their masks. inputs: [B]."""
    return sample(masked, plan.constrained, inputs if plan.order is None else inputs[plan.constrained_at])


def sample_free(logits: mx.array, plan: SplitPlan, inputs: mx.array) -> Sampled:
    """The tokens of the rows without a grammar, or of all where that costs less. inputs: [B], gave logits [B, V]."""
    if plan.free_at is None:
        return sample(logits, plan.free, inputs)
    return sample(logits[plan.free_at], plan.free, inputs[plan.free_at])


def in_batch_order(free: Sampled, constrained: Sampled, plan: SplitPlan) -> mx.array:
    """All rows' tokens, [B]."""
    return mx.concatenate([free.tokens, constrained.tokens])[plan.order]
