"""From logits to tokens: all rows in one graph, each as if alone, and nothing added for what no row uses.

Owns the order of the parts, which is mlx-lm's (bias, penalties, bans, log-probabilities, filters, draw), and
which rows go which way.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import mlx.core as mx

from engine.row import Row
from engine.sampling import filters, penalties
from engine.sampling.bans import Bans, bad_word_reach, plan_bans, without_banned, without_early_stops
from engine.sampling.greedy import likeliest_tokens
from engine.sampling.history import History
from engine.sampling.logprobs import LogprobRecord, LogprobRows, hand_out, logprobs_of, plan_logprobs
from engine.sampling.noise import coin, draw_keys

# Names of the protocol's Sampling fields that this sampler honours.
HONOURED_FIELDS: Final = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "repetition_context",
    "presence_penalty",
    "presence_context",
    "frequency_penalty",
    "frequency_context",
    "logit_bias",
    "bad_words",
    "allowed_ids",
    "xtc_spared_ids",
)


class Sampled(NamedTuple):
    """tokens: [B] uint32. logprobs: of the rows that asked, None when nobody did."""

    tokens: mx.array
    logprobs: LogprobRecord | None

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [self.tokens, *(self.logprobs.arrays if self.logprobs is not None else ())]


class _Processors(NamedTuple):
    biases: penalties.Biases | None
    penalties: penalties.Penalties | None
    bans: Bans | None
    history: History | None


class _Draw(NamedTuple):
    """Rows that draw the same way. width: of top-k, 0 without; top_k: [R, 1]."""

    rows: tuple[Row, ...]
    at: mx.array
    heat: filters.Heat
    width: int
    top_k: mx.array


class _Parts(NamedTuple):
    processors: _Processors | None
    logprobs: LogprobRows | None
    draws: tuple[_Draw, ...]
    has_greedy: bool


@dataclass(slots=True, eq=False)
class SamplingPlan:
    """What does not change while the rows of a batch stay: made when one joins or leaves, and their windows.

    has_minimum: some row may not stop yet. has_xtc: some row may lose its likeliest tokens.
    """

    rows: list[Row]
    has_minimum: bool
    has_xtc: bool
    _parts: _Parts | None = None

    @property
    def is_argmax(self) -> bool:
        """Whether every row is greedy, with all other settings at their defaults."""
        return not self.has_minimum and all(_is_argmax(row) for row in self.rows)

    def parts(self, vocabulary_size: int) -> _Parts:
        """Made at the first step, when the register and the rows' tokens fit together."""
        if self._parts is None:
            self._parts = _Parts(
                processors=_plan_processors(self.rows, vocabulary_size),
                logprobs=plan_logprobs(self.rows),
                draws=tuple(_plan_draws(self.rows, frozenset(), vocabulary_size)),
                has_greedy=any(row.submit.sampling.temperature <= 0 for row in self.rows),
            )
        return self._parts


def plan_sampling(rows: list[Row]) -> SamplingPlan:
    """The plan for these rows, in batch order."""
    return SamplingPlan(
        rows,
        has_minimum=any(row.submit.min_tokens > row.drawn for row in rows),
        has_xtc=any(row.submit.sampling.xtc_probability > 0 for row in rows if row.submit.sampling.temperature > 0),
    )


def sample(logits: mx.array, plan: SamplingPlan, inputs: mx.array) -> Sampled:
    """Next tokens of the plan's rows from logits [B, V], which inputs [B] gave; counts the draw of each row."""
    rows = plan.rows
    parts = plan.parts(logits.shape[-1])
    if parts.processors is not None:
        logits = _processed(logits, parts.processors, inputs)
    if plan.has_minimum:
        logits = without_early_stops(logits, rows)
    tokens = _drawn(logits, plan, parts)
    record = None
    if parts.logprobs is not None:
        record = logprobs_of(_of(logits, parts.logprobs.at), _of(tokens, parts.logprobs.at), parts.logprobs.top)
        hand_out(record, parts.logprobs)
    for row in rows:
        row.drawn += 1
    return Sampled(tokens, record)


def _processed(logits: mx.array, processors: _Processors, inputs: mx.array) -> mx.array:
    logits = logits.astype(mx.float32)[:]
    window = processors.history.advance(inputs) if processors.history is not None else None
    if processors.biases is not None:
        logits = penalties.biased(logits, processors.biases)
    if processors.penalties is not None and window is not None:
        logits = penalties.penalised(logits, processors.penalties, window)
    if processors.bans is not None:
        logits = without_banned(logits, processors.bans, window)
    return logits


def _drawn(logits: mx.array, plan: SamplingPlan, parts: _Parts) -> mx.array:
    draws = parts.draws
    if plan.has_xtc:
        fired = frozenset(place for place, row in enumerate(plan.rows) if _fires(row))
        if fired:
            logits = _without_top_choices(logits, plan.rows, sorted(fired))
            draws = tuple(_plan_draws(plan.rows, fired, logits.shape[-1]))
    if len(draws) == 1 and not parts.has_greedy:
        return _drawn_alike(logits, draws[0])
    tokens = likeliest_tokens(logits) if parts.has_greedy else mx.zeros((len(plan.rows),), mx.uint32)
    for alike in draws:
        tokens[alike.at] = _drawn_alike(_of(logits, alike.at), alike)
    return tokens


def _drawn_alike(logits: mx.array, alike: _Draw) -> mx.array:
    logits = logits.astype(mx.float32)
    keys = draw_keys(alike.rows)
    if alike.width:
        return filters.draw_ranked(logits, alike.top_k, alike.width, alike.heat, keys)
    return filters.draw(logits, alike.heat, keys)


def _of(values: mx.array, at: mx.array) -> mx.array:
    """The rows `at` of values; at holds places in ascending order."""
    return values if at.size == values.shape[0] else values[at]


def _is_argmax(row: Row) -> bool:
    sampling = row.submit.sampling
    has_bans = bool(sampling.logit_bias or sampling.bad_words or sampling.allowed_ids)
    changes_logits = has_bans or penalties.is_penalised(row)
    return sampling.temperature <= 0 and not changes_logits and row.submit.logprobs is None


# --- plans ------------------------------------------------------------------------------------------


def _plan_processors(rows: list[Row], vocabulary_size: int) -> _Processors | None:
    reaches = [max(penalties.penalty_reach(row), bad_word_reach(row)) for row in rows]
    seen = [place for place, reach in enumerate(reaches) if reach]
    history = None
    if seen:
        history = History(tuple(rows[place] for place in seen), mx.array(seen, dtype=mx.uint32), max(reaches))
    processors = _Processors(
        biases=penalties.plan_biases(rows, vocabulary_size),
        penalties=penalties.plan_penalties(rows, seen),
        bans=plan_bans(rows, seen, vocabulary_size),
        history=history,
    )
    return processors if any(part is not None for part in processors) else None


def _plan_draws(rows: list[Row], filtered: frozenset[int], vocabulary_size: int) -> list[_Draw]:
    """Ways to draw, each with its rows. filtered: places of rows whose top-p and min-p are done already."""
    hot = [place for place, row in enumerate(rows) if row.submit.sampling.temperature > 0]
    ways: dict[tuple[bool, bool], list[int]] = {}
    for place in hot:
        sampling = rows[place].submit.sampling
        has_top_p = 0 < sampling.top_p < 1 and place not in filtered
        ways.setdefault((0 < sampling.top_k < vocabulary_size, has_top_p), []).append(place)
    return [_draw_of(rows, places, filtered, is_ranked=way[0]) for way, places in sorted(ways.items())]


def _draw_of(rows: list[Row], places: list[int], filtered: frozenset[int], *, is_ranked: bool) -> _Draw:
    top_k = [rows[place].submit.sampling.top_k if is_ranked else 0 for place in places]
    return _Draw(
        rows=tuple(rows[place] for place in places),
        at=mx.array(places, dtype=mx.uint32),
        heat=filters.heat_of([(rows[place].submit.sampling, place in filtered) for place in places]),
        width=max(top_k),
        top_k=mx.array(top_k, dtype=mx.uint32)[:, None],
    )


# --- XTC --------------------------------------------------------------------------------------------


def _fires(row: Row) -> bool:
    sampling = row.submit.sampling
    return sampling.temperature > 0 and sampling.xtc_probability > 0 and coin(row) <= sampling.xtc_probability


def _without_top_choices(logits: mx.array, rows: list[Row], fired: list[int]) -> mx.array:
    at = mx.array(fired, dtype=mx.uint32)
    settings = [rows[place].submit.sampling for place in fired]
    vocabulary_size = logits.shape[-1]
    spared = [(index, id_) for index, each in enumerate(settings) for id_ in each.xtc_spared_ids]
    xtc = filters.XtcRows(
        threshold=mx.array([[each.xtc_threshold] for each in settings], dtype=mx.float32),
        spared_rows=mx.array([index for index, id_ in spared if id_ < vocabulary_size], dtype=mx.uint32),
        spared_ids=mx.array([id_ for _, id_ in spared if id_ < vocabulary_size], dtype=mx.uint32),
    )
    heat = filters.heat_of([(each, False) for each in settings])
    kept = filters.without_top_choices(logits[at].astype(mx.float32), heat, xtc)
    logits = logits.astype(mx.float32)[:]
    logits[at] = kept
    return logits
