"""Jumping forward: a lone row takes the tokens that its grammar forces without sampling them, as one chunk."""

import time
from typing import Final

import mlx.nn as nn

from engine import prefill
from engine.batch import Group
from engine.retire import Roster
from engine.row import Row

# Fewer save no forward: those before the last need one of their own, as the last does in the next step.
LEAST_TOKENS: Final = 3


def jump_forward(model: nn.Module, group: Group, roster: Roster, most_tokens: int) -> bool:
    """Whether the group's one row jumped: its forced tokens are told, and the last of them is its register.

    Called when its last token is read and forwarded. The tokens are those that masks would leave as the only
    ones, so the row says what it says among others; each counts as drawn, and the random stream goes on after them.
    One that the row's own settings exclude is left to the sampler, which then has none to take.
    """
    if len(group.rows) != 1 or group.rows[0].key not in roster.rows:
        return False
    row = group.rows[0]
    forced = row.possible(_forced(row)[:most_tokens])
    if len(forced) < LEAST_TOKENS:
        return False
    now = time.monotonic()
    for token in forced:
        row.drawn += 1
        if not roster.take_token(row, token, now):
            return True
    prefill.launch_known(model, group, forced[:-1])
    group.go_on_from([forced[-1]])
    return True


def _forced(row: Row) -> list[int]:
    """Tokens whose log-probabilities nobody asked for."""
    return [] if row.grammar is None or row.submit.logprobs is not None else row.grammar.forced
