"""Log-probabilities of sampled tokens, for the rows that asked: computed with the sample, read with its tokens.

Owns their way from the device to the wire's TokenLogprobs; of which logits they are is sampler.py's.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import mlx.core as mx

from engine.row import Row
from engine.sampling.candidates import likeliest
from protocol.codec import pack_ids
from protocol.messages import TokenLogprobs

# Told of a token that was impossible: JSON has no infinity.
_LEAST: Final = -9999.0


class LogprobRows(NamedTuple):
    """Rows that asked. at: [L], their places in the batch. top: alternatives wanted by the one that wants most."""

    rows: tuple[Row, ...]
    at: mx.array
    top: int


class _OnHost(NamedTuple):
    chosen: list[float]
    top_ids: list[list[int]]
    top: list[list[float]]


@dataclass(slots=True, eq=False)
class LogprobRecord:
    """One sample's log-probabilities. chosen: [L]. top_ids, top: [L, k], most likely first."""

    chosen: mx.array
    top_ids: mx.array
    top: mx.array
    _on_host: _OnHost | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [self.chosen, self.top_ids, self.top]

    def told(self, index: int, count: int) -> TokenLogprobs:
        """Of the row at index, with at most count alternatives, possible ones only. Waits for the device."""
        if self._on_host is None:
            lists = (self.chosen.tolist(), self.top_ids.tolist(), self.top.tolist())
            self._on_host = _OnHost(*lists)  # pyright: ignore[reportArgumentType]  # shapes as said above
        top = [value for value in self._on_host.top[index][:count] if value > -math.inf]
        return TokenLogprobs(
            logprob=_told(self._on_host.chosen[index]),
            top_ids=pack_ids(self._on_host.top_ids[index][: len(top)]),
            top=tuple(_told(value) for value in top),
        )


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """One row's share of a record. count: alternatives that this row wants."""

    record: LogprobRecord
    index: int
    count: int

    def read(self) -> TokenLogprobs:
        """For the wire."""
        return self.record.told(self.index, self.count)


def plan_logprobs(rows: list[Row]) -> LogprobRows | None:
    """The rows that asked, None when nobody did."""
    at = [place for place, row in enumerate(rows) if row.submit.logprobs is not None]
    if not at:
        return None
    asking = tuple(rows[place] for place in at)
    top = max(row.submit.logprobs.top for row in asking if row.submit.logprobs is not None)
    return LogprobRows(asking, mx.array(at, dtype=mx.uint32), top)


def logprobs_of(logits: mx.array, tokens: mx.array, top: int) -> LogprobRecord:
    """Of tokens [L] under logits [L, V], with the top alternatives of each."""
    logits = logits.astype(mx.float32)
    normaliser = mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1) - normaliser
    count = min(top, logits.shape[-1])
    if not count:
        nothing = mx.zeros((len(tokens), 0))
        return LogprobRecord(chosen[:, 0], nothing.astype(mx.uint32), nothing)
    ranked = likeliest(logits, count)
    return LogprobRecord(chosen[:, 0], ranked.ids, ranked.logits - normaliser)


def hand_out(record: LogprobRecord, asking: LogprobRows) -> None:
    """Each row keeps its share until its token is read."""
    for index, row in enumerate(asking.rows):
        assert row.submit.logprobs is not None
        row.unread_logprobs.append(RowLogprobs(record, index, row.submit.logprobs.top))


def launch_prompt_logprobs(logits: mx.array, row: Row) -> list[mx.array]:
    """Adds to the row those of its prompt's tokens that follow its next chunk's, if it wants them.

    logits: [C, V], of the chunk from row.prefilled on. Returns what has to be evaluated. Replayed tokens have none.
    """
    wanted = row.submit.logprobs
    if wanted is None or not wanted.of_prompt:
        return []
    start = row.prefilled + 1
    targets = row.to_prefill[start : min(start + logits.shape[0], row.prompt_tokens)]
    if not targets:
        return []
    record = logprobs_of(logits[: len(targets)], mx.array(targets, dtype=mx.uint32), wanted.top)
    row.prompt_logprobs += [RowLogprobs(record, index, wanted.top) for index in range(len(targets))]
    return record.arrays


def _told(value: float) -> float:
    return max(value, _LEAST) if value == value else _LEAST  # NaN is not itself
