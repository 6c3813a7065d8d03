"""A group some of whose rows follow grammars: the others are sampled beside the forward, these once masked.

Owns which row goes when, and the order in which their tokens come together; how each is sampled is sampler.py's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class Split(NamedTuple):
    """A step before its masks. free: of the rows that need none. logits: [B, V], of all."""

    free: Sampled | None
    logits: mx.array

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [self.logits, *(self.free.arrays if self.free is not None else ())]


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


def sample_free(logits: mx.array, plan: SplitPlan, inputs: mx.array) -> Split:
    """The tokens of the rows without a grammar, from logits [B, V], which inputs [B] gave."""
    if plan.order is None:
        return Split(None, logits)
    if plan.free_at is None:
        free = sample(logits, plan.free, inputs)
    else:
        free = sample(logits[plan.free_at], plan.free, inputs[plan.free_at])
    return Split(free, logits)


def constrained_logits(split: Split, plan: SplitPlan) -> mx.array:
    """[C, V]: of the rows that follow grammars. Copied late: what is masked then is still in the cache."""
    return split.logits if plan.order is None else split.logits[plan.constrained_at]


def sample_constrained(split: Split, masked: mx.array, plan: SplitPlan, inputs: mx.array) -> Sampled:
    """All rows' tokens, [B]. masked: [C, V], their logits under their masks. inputs: [B]."""
    if plan.order is None or split.free is None:
        return sample(masked, plan.constrained, inputs)
    constrained = sample(masked, plan.constrained, inputs[plan.constrained_at])
    tokens = mx.concatenate([split.free.tokens, constrained.tokens])[plan.order]
    return Sampled(tokens, constrained.logprobs)
