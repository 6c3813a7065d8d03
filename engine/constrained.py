"""A decode step beside grammars: what is read decides what may follow, and is worked out while the device forwards.

The step before is read between the building of the forward and its launch: on a device that waits for the host, which
is where masks cost most, the threads that fill them then have the launch to themselves.
"""

from concurrent.futures import Future
from typing import NamedTuple

import mlx.core as mx

from engine import decode
from engine.batch import Group
from engine.sampling.masks import GrammarMasks, Words
from engine.sampling.split import Split, SplitPlan, constrained_logits, sample_free


class MaskedStep(NamedTuple):
    """A step n that is launched up to its masks. tokens: of step n-1, None when all of them are known.

    Until the masks are waited for, their threads own the rows that follow grammars.
    """

    plan: SplitPlan
    split: Split
    masks: Future[Words]
    tokens: list[int] | None

    def wait(self) -> None:
        """Until the rows that follow grammars may be touched again."""
        self.masks.result()

    def known_tokens(self) -> list[int]:
        """Of step n-1, which nobody has been told. The grammars have taken them."""
        assert self.tokens is not None, "some row's token is unread"
        self.wait()
        return self.tokens


def launch_beside_masks(logits: mx.array, group: Group, masks: GrammarMasks) -> MaskedStep:
    """Reads step n-1, then sets the threads to fill masks and the device to work on step n. logits: [B, V]."""
    plan = group.split
    assert plan is not None, "a group without grammars has no masks"
    split = sample_free(logits, plan, group.register)
    tokens = decode.read(group.register) if any(row.has_unread for row in group.rows) else None
    filling = masks.start(plan.constrained.rows, _unread(group, tokens))
    decode.launch_split(split)
    return MaskedStep(plan, split, filling, tokens)


def launch_rest(step: MaskedStep, group: Group, masks: GrammarMasks) -> None:
    """Samples step n of the rows that follow grammars; the group's register is then that of all its rows."""
    masked = masks.laid_over(constrained_logits(step.split, step.plan), step.masks.result())
    group.register = decode.launch_masked(step.split, masked, step.plan, group.register)


def _unread(group: Group, tokens: list[int] | None) -> list[int | None]:
    """Of each constrained row, the token that nobody has taken yet."""
    if tokens is None:
        tokens = [0] * len(group.rows)
    return [
        token if row.has_unread else None
        for row, token in zip(group.rows, tokens, strict=True)
        if row.grammar is not None
    ]
