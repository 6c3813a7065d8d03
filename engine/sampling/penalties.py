"""Token biases, and the penalties over rows' last tokens, in mlx-lm's order and with its formulas."""

from typing import NamedTuple

import mlx.core as mx

from engine.row import Row
from engine.sampling.history import NO_TOKEN, reach_of


class Penalty(NamedTuple):
    """One penalty of all penalised rows. amount: [N, 1] float32. reach: [N, 1] int32, last tokens it looks at."""

    amount: mx.array
    reach: mx.array


class Penalties(NamedTuple):
    """at: [N, 1], places of the penalised rows in the batch. places: [N], of their windows in the history.

    None: no row has that penalty.
    """

    at: mx.array
    places: mx.array
    repetition: Penalty | None
    presence: Penalty | None
    frequency: Penalty | None


class Biases(NamedTuple):
    """Triples of a row's place in the batch, an id and what is added to its logit, each [n]."""

    at: mx.array
    ids: mx.array
    amounts: mx.array


def plan_biases(rows: list[Row], vocabulary_size: int) -> Biases | None:
    """The token biases of the rows in batch order."""
    triples = [
        (place, each.id, each.bias)
        for place, row in enumerate(rows)
        for each in row.submit.sampling.logit_bias
        if each.id < vocabulary_size
    ]
    if not triples:
        return None
    places, ids, amounts = zip(*triples, strict=True)
    return Biases(mx.array(places), mx.array(ids, dtype=mx.uint32), mx.array(amounts, dtype=mx.float32))


def biased(logits: mx.array, biases: Biases) -> mx.array:
    """logits [B, V] after the biases."""
    return logits.at[biases.at, biases.ids].add(biases.amounts)


def is_penalised(row: Row) -> bool:
    """Whether the row has any penalty."""
    sampling = row.submit.sampling
    return sampling.repetition_penalty != 1 or sampling.presence_penalty != 0 or sampling.frequency_penalty != 0


def penalty_reach(row: Row) -> int:
    """Last tokens that the row's penalties look at; 0 without any."""
    sampling = row.submit.sampling
    return max(
        reach_of(sampling.repetition_context) if sampling.repetition_penalty != 1 else 0,
        reach_of(sampling.presence_context) if sampling.presence_penalty != 0 else 0,
        reach_of(sampling.frequency_context) if sampling.frequency_penalty != 0 else 0,
    )


def plan_penalties(rows: list[Row], seen: list[int]) -> Penalties | None:
    """The penalties of the rows in batch order. seen: places of the rows that have a window, in its order."""
    at = [place for place, row in enumerate(rows) if is_penalised(row)]
    if not at:
        return None
    all_settings = [rows[place].submit.sampling for place in at]
    return Penalties(
        at=mx.array(at, dtype=mx.uint32)[:, None],
        places=mx.array([seen.index(place) for place in at], dtype=mx.uint32),
        repetition=_penalty([(each.repetition_penalty, each.repetition_context) for each in all_settings], 1.0),
        presence=_penalty([(each.presence_penalty, each.presence_context) for each in all_settings], 0.0),
        frequency=_penalty([(each.frequency_penalty, each.frequency_context) for each in all_settings], 0.0),
    )


def penalised(logits: mx.array, penalties: Penalties, window: mx.array) -> mx.array:
    """logits [B, V] after the penalties. window: [.., W], last tokens of the rows that have one."""
    tokens = window[penalties.places]
    at = penalties.at
    if penalties.repetition is not None:
        ids = _reached(tokens, penalties.repetition)
        amount = penalties.repetition.amount
        chosen = logits[at, ids]
        logits[at, ids] = mx.where(chosen < 0, chosen * amount, chosen / amount)
    if penalties.presence is not None:
        ids = _reached(tokens, penalties.presence)
        logits[at, ids] = logits[at, ids] - penalties.presence.amount
    if penalties.frequency is not None:
        ids = _reached(tokens, penalties.frequency)
        amount = mx.where(_is_reached(tokens, penalties.frequency), penalties.frequency.amount, 0.0)
        logits = logits.at[at, ids].subtract(amount)
    return logits


def _penalty(settings: list[tuple[float, int]], neutral: float) -> Penalty | None:
    if all(amount == neutral for amount, _ in settings):
        return None
    amounts = mx.array([[amount] for amount, _ in settings], dtype=mx.float32)
    return Penalty(amounts, mx.array([[reach_of(context)] for _, context in settings], dtype=mx.int32))


def _is_reached(tokens: mx.array, penalty: Penalty) -> mx.array:
    from_newest = mx.arange(tokens.shape[-1], 0, -1, dtype=mx.int32)[None]
    return (from_newest <= penalty.reach) & (tokens != NO_TOKEN)


def _reached(tokens: mx.array, penalty: Penalty) -> mx.array:
    """The tokens in reach; in the columns out of reach the newest one again, which changes nothing."""
    return mx.where(_is_reached(tokens, penalty), tokens, tokens[:, -1:])
