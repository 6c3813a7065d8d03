"""A decode step beside grammars: what is read decides what may follow, and is worked out while the device forwards.

The step before is read between the building of the forward and its launch: on a device that waits for the host, which
is where masks cost most, the threads that fill them then have the launch to themselves. On a CPU, which they share
with the device's own, they begin earlier: while it still samples the rows without a grammar, on one processor.
"""

from concurrent.futures import Future
from typing import NamedTuple

import mlx.core as mx

from engine import decode
from engine.batch import Group
from engine.row import Row
from engine.sampling.masks import GrammarMasks, Words
from engine.sampling.split import SplitPlan, constrained_logits


class MaskedStep(NamedTuple):
    """A step n that is launched up to its masks. logits: [B, V]. tokens: of step n-1, None when all of them are known.

    Until the masks are waited for, their threads own the rows that follow grammars.
    """

    plan: SplitPlan
    logits: mx.array
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
    """Reads step n-1, sets the threads to fill masks and the device to work on step n's logits [B, V].

    Where the tokens of rows in grammars are there ahead, masks and device need no others: those are read last.
    """
    plan = group.split
    assert plan is not None, "a group without grammars has no masks"
    rows = plan.constrained.rows
    has_unread = any(row.has_unread for row in group.rows)
    tokens: list[int] | None = None
    own: list[int] | None = None
    if has_unread and group.ahead is not None:
        own = decode.read(group.ahead)
    elif has_unread:
        tokens = decode.read(group.register)
        own = [token for row, token in zip(group.rows, tokens, strict=True) if row.grammar is not None]
    filling = masks.start(rows, _unread(rows, own) if own is not None else [None] * len(rows))
    decode.launch_logits(logits)
    if has_unread and tokens is None:
        tokens = decode.read(group.register)
    return MaskedStep(plan, logits, filling, tokens)


def launch_rest(step: MaskedStep, group: Group, masks: GrammarMasks) -> None:
    """Samples step n; the group's register is then that of all its rows."""
    masked = masks.laid_over(constrained_logits(step.logits, step.plan), step.masks.result())
    group.register, group.ahead = decode.launch_masked(step.logits, masked, step.plan, group.register)


def _unread(rows: list[Row], tokens: list[int]) -> list[int | None]:
    """Of each constrained row, the token that nobody has taken yet."""
    return [token if row.has_unread else None for row, token in zip(rows, tokens, strict=True)]
