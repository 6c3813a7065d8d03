"""Which tokens a draw may take: top-k, top-p, min-p and XTC, in mlx-lm's order and on untempered logits.

All keep or drop by the height of a logit. Owns the draws that follow; which rows go which way is sampler.py's.
"""

import math
from typing import Final, NamedTuple

import mlx.core as mx

from engine.sampling.candidates import contenders, likeliest
from engine.sampling.noise import gumbel, random_bits
from protocol.sampling import Sampling

# Rounds of the nucleus draw. A round that fails divides the mass outside the nucleus by e on average, so for settings
# like the first two it stays undecided once in 1e7 draws; then its token is the likeliest, which is always inside.
_ROUNDS_FOR: Final = ((0.8, 1.0, 7), (0.5, 1.3, 12))
_MOST_ROUNDS: Final = 18
# Colder rows draw as at this temperature, which is greedy already: their logits would overflow to infinities.
_COLDEST: Final = 1e-6
_LOG2_E: Final = 1.4426950408889634


class Heat(NamedTuple):
    """Settings of rows that draw, each [R, 1] float32. top_p: 1 is off. least: log(min_p), -inf is off.

    rounds: of a nucleus draw, 0 when no row has top-p.
    """

    inverse_temperature: mx.array
    top_p: mx.array
    least: mx.array
    rounds: int


class XtcRows(NamedTuple):
    """Rows whose likeliest tokens go at this draw. threshold: [R, 1]. spared_rows, spared_ids: pairs that stay, [n]."""

    threshold: mx.array
    spared_rows: mx.array
    spared_ids: mx.array


def heat_of(settings: list[tuple[Sampling, bool]]) -> Heat:
    """Of rows with a temperature, each with whether its top-p and min-p are done already."""
    top_p = [1.0 if done or not 0 < each.top_p < 1 else each.top_p for each, done in settings]
    least = [-math.inf if done or each.min_p == 0 else math.log(each.min_p) for each, done in settings]
    inverse = [1.0 / max(each.temperature, _COLDEST) for each, _ in settings]
    columns = [mx.array([[value] for value in values], dtype=mx.float32) for values in (inverse, top_p, least)]
    return Heat(*columns, rounds=_rounds_of(min(top_p), max(each.temperature for each, _ in settings)))


def draw(logits: mx.array, heat: Heat, keys: mx.array) -> mx.array:
    """Tokens [R] of rows without top-k. logits: [R, V] float32; keys: [R, 2].

    Gumbel-max: argmax(logits / T + noise) is distributed as softmax(logits / T) (Gumbel 1954).
    """
    found = contenders(logits, keys)
    greatest = found.logits.max(axis=-1, keepdims=True)
    scores = (found.logits - greatest) * heat.inverse_temperature + found.noise
    scores = mx.where(found.logits < greatest + heat.least, -mx.inf, scores)
    if heat.rounds:
        at = _first_in_nucleus(logits, found.logits, scores, heat)
    else:
        at = mx.argmax(scores, axis=-1, keepdims=True)
    return mx.take_along_axis(found.ids, at, axis=-1)[:, 0]


def draw_ranked(logits: mx.array, top_k: mx.array, width: int, heat: Heat, keys: mx.array) -> mx.array:
    """Tokens [R] of rows with top-k. top_k: [R, 1], at most width. Ties at the k-th place are broken in any way."""
    ranked = likeliest(logits, width)
    greatest = ranked.logits[:, :1]
    scores = (ranked.logits - greatest) * heat.inverse_temperature + gumbel(random_bits(keys, ranked.ids))
    is_kept = (ranked.logits >= greatest + heat.least) & (mx.arange(width)[None] < top_k)
    if heat.rounds:
        weights = _weights(ranked.logits, greatest)
        above = mx.cumsum(weights, axis=-1, inclusive=False)
        is_in = above < _wanted_mass(_weights(logits, greatest), heat.top_p)
        is_kept = is_kept & (ranked.logits >= mx.where(is_in, ranked.logits, mx.inf).min(axis=-1, keepdims=True))
    at = mx.argmax(mx.where(is_kept, scores, -mx.inf), axis=-1, keepdims=True)
    return mx.take_along_axis(ranked.ids, at, axis=-1)[:, 0]


def without_top_choices(logits: mx.array, heat: Heat, xtc: XtcRows) -> mx.array:
    """XTC, and the top-p and min-p that come before it: what goes becomes -inf. logits: [R, V] float32.

    Of the tokens over the threshold only the least likely stays, and those that are spared
    (p-e-w, text-generation-webui pull request 6335).
    """
    greatest = logits.max(axis=-1, keepdims=True)
    if heat.rounds:
        logits = mx.where(logits < _nucleus_floor(logits, greatest, heat.top_p), -mx.inf, logits)
    logits = mx.where(logits < greatest + heat.least, -mx.inf, logits)
    probabilities = mx.softmax(logits, axis=-1)
    least = mx.where(probabilities > xtc.threshold, probabilities, mx.inf).min(axis=-1, keepdims=True)
    is_out = probabilities > least
    if xtc.spared_ids.size:
        is_out[xtc.spared_rows, xtc.spared_ids] = False
    return mx.where(is_out, -mx.inf, logits)


def _first_in_nucleus(logits: mx.array, heights: mx.array, scores: mx.array, heat: Heat) -> mx.array:
    """Index [R, 1] of the best score whose token is in the nucleus, exactly, and without sorting a vocabulary.

    A token is in the nucleus when the mass of those above it is under top_p. The winner is tried; when it is out,
    so is all that lies no higher, and the winner of the rest is tried.
    """
    likeliest_at = mx.argmax(heights, axis=-1, keepdims=True)
    weights = _weights(logits, mx.take_along_axis(heights, likeliest_at, axis=-1))
    wanted = _wanted_mass(weights, heat.top_p)
    tried, is_out = likeliest_at, mx.array(False)
    for tries in range(heat.rounds):
        if tries:
            height = mx.take_along_axis(heights, tried, axis=-1)
            scores = mx.where(is_out & (heights <= height), -mx.inf, scores)
        tried = mx.argmax(scores, axis=-1, keepdims=True)
        # A product: where() takes twice as long on a CPU.
        above = ((logits > mx.take_along_axis(heights, tried, axis=-1)) * weights).sum(axis=-1, keepdims=True)
        is_out = above >= wanted
    return mx.where(is_out, likeliest_at, tried)


def _rounds_of(least_top_p: float, greatest_temperature: float) -> int:
    if least_top_p >= 1:
        return 0
    fits = (rounds for top_p, heat, rounds in _ROUNDS_FOR if least_top_p >= top_p and greatest_temperature <= heat)
    return next(fits, _MOST_ROUNDS)


def _nucleus_floor(logits: mx.array, greatest: mx.array, top_p: mx.array) -> mx.array:
    """[R, 1]: the least logit in the nucleus, as mlx_lm.sample_utils.apply_top_p finds it."""
    ascending = mx.sort(logits, axis=-1)
    weights = _weights(ascending, greatest)
    above = mx.cumsum(weights, axis=-1, reverse=True, inclusive=False)
    wanted = _wanted_mass(weights, top_p)
    return mx.where(above < wanted, ascending, mx.inf).min(axis=-1, keepdims=True)


def _wanted_mass(weights: mx.array, top_p: mx.array) -> mx.array:
    """[R, 1]: top_p of the whole vocabulary's mass; without bound for rows without top-p."""
    return mx.where(top_p < 1, top_p * weights.sum(axis=-1, keepdims=True), mx.inf)


def _weights(logits: mx.array, greatest: mx.array) -> mx.array:
    """exp(logits - greatest). MLX's exp on x86 takes twice as long as its power, and a vocabulary is long."""
    return mx.power(2.0, (logits - greatest) * _LOG2_E)
