"""From logits to tokens: greedy and temperature rows in one graph, nothing added for what no row uses."""

from dataclasses import dataclass
from typing import Final

import mlx.core as mx

from engine.row import Row

# Names of the protocol's Sampling fields that this sampler honours.
HONOURED_FIELDS: Final = ("temperature",)
# Colder rows draw as at this temperature, which is greedy already: their logits would overflow to infinities.
_COLDEST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """What does not change while the rows of a batch stay: made when one joins or leaves.

    hot: indices of the rows with a temperature, [H]. inverse_temperatures: [H, 1] float32.
    has_minimum: some row may not stop yet.
    """

    hot: mx.array
    hot_rows: tuple[Row, ...]
    inverse_temperatures: mx.array
    has_minimum: bool


def plan_sampling(rows: list[Row]) -> SamplingPlan:
    """The plan for these rows, in batch order."""
    hot = [index for index, row in enumerate(rows) if row.submit.sampling.temperature > 0]
    has_minimum = any(row.submit.min_tokens > row.drawn for row in rows)
    hot_rows = tuple(rows[index] for index in hot)
    inverse = [[1.0 / max(row.submit.sampling.temperature, _COLDEST)] for row in hot_rows]
    return SamplingPlan(mx.array(hot, dtype=mx.uint32), hot_rows, mx.array(inverse, dtype=mx.float32), has_minimum)


def sample(logits: mx.array, rows: list[Row], plan: SamplingPlan) -> mx.array:
    """Next tokens [B] uint32 of logits [B, V]; counts the draw of each row.

    Temperature rows draw by the Gumbel-max trick: argmax(logits / T + noise), which needs no
    normalised distribution (Gumbel 1954; Maddison et al. 2014).
    """
    if plan.has_minimum:
        logits = _without_early_stops(logits, rows)
    tokens = mx.argmax(logits, axis=-1)
    if plan.hot_rows:
        noise = _gumbel_noise(plan.hot_rows, logits.shape[-1])
        tokens[plan.hot] = mx.argmax(logits[plan.hot] * plan.inverse_temperatures + noise, axis=-1)
    for row in rows:
        row.drawn += 1
    return tokens


def _gumbel_noise(rows: tuple[Row, ...], vocabulary_size: int) -> mx.array:
    """[H, V] float32. A row's noise depends on its seed and position alone, never on its neighbours."""
    keys = mx.array([[_folded(row.submit.seed), row.drawn] for row in rows], dtype=mx.uint32)
    return mx.vmap(lambda key: mx.random.gumbel((vocabulary_size,), key=key))(keys)


def _folded(seed: int) -> int:
    """A 63-bit seed as the 32 bits that a key's word holds."""
    return (seed ^ (seed >> 32)) & 0xFFFFFFFF


def _without_early_stops(logits: mx.array, rows: list[Row]) -> mx.array:
    """Stop tokens of rows that are under their min_tokens become impossible.

    An id that the model has no logit for never comes up; written to, it would be memory of somebody else.
    """
    vocabulary_size = logits.shape[-1]
    pairs = [
        (index, id_)
        for index, row in enumerate(rows)
        if row.drawn < row.submit.min_tokens
        for id_ in row.stop_ids
        if id_ < vocabulary_size
    ]
    if not pairs:
        return logits
    masked = logits[:]
    masked[mx.array([index for index, _ in pairs]), mx.array([id_ for _, id_ in pairs])] = -mx.inf
    return masked
