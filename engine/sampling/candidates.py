"""Few tokens that stand for a whole vocabulary: the likeliest ones, and those that can win a draw.

A partition of whole rows costs as much as a decode step on a CPU. Here the vocabulary falls into blocks of
eight, only the blocks' greatest logits are partitioned, and only the best blocks are looked into.
"""

from typing import Final, NamedTuple

import mlx.core as mx

from engine.sampling.noise import exponential, gumbel, random_bits

_BLOCK_TOKENS: Final = 8
# Counters of the arrivals and of their tokens, apart from each other and from the token ids.
_ARRIVALS_FROM: Final = 1 << 31
_TOKENS_FROM: Final = 3 << 30
# Of one draw from a uniform vocabulary: e to the minus this is the chance that a further arrival would have won.
_CERTAINTY: Final = 20


class Candidates(NamedTuple):
    """ids: [R, n] uint32. logits: [R, n] float32. noise: [R, n] float32, Gumbel noise of each token."""

    ids: mx.array
    logits: mx.array
    noise: mx.array


class _Blocks(NamedTuple):
    """members: [R, 8, blocks] logits, short rows filled up with -inf; block b holds each id that is b modulo blocks.
    chosen: [R, count], the blocks with the greatest logits."""

    members: mx.array
    chosen: mx.array


class Ranked(NamedTuple):
    """The likeliest tokens, most likely first. ids: [R, k] uint32. logits: [R, k]."""

    ids: mx.array
    logits: mx.array


def likeliest(logits: mx.array, count: int) -> Ranked:
    """The `count` greatest logits of each row of logits [R, V], in descending order. count: 1 to V.

    They lie in the `count` blocks with the greatest maxima: a token elsewhere has that many above it.
    """
    blocks = _best_blocks(logits, count)
    members = _opened(blocks)
    at = mx.argpartition(-members.logits, min(count, members.logits.shape[-1]) - 1, axis=-1)[:, :count]
    values = mx.take_along_axis(members.logits, at, axis=-1)
    order = mx.argsort(-values, axis=-1)
    ids = mx.take_along_axis(members.ids, mx.take_along_axis(at, order, axis=-1), axis=-1)
    return Ranked(_clamped(ids, logits.shape[-1]), mx.take_along_axis(values, order, axis=-1))


def contenders(logits: mx.array, keys: mx.array) -> Candidates:
    """Tokens among which argmax(logits * c + noise) is that of the whole vocabulary, for any c > 0.

    logits: [R, V] float32. keys: [R, 2], of the draw. The likeliest tokens get their own noise. The noise of all
    others is the upper end of one Poisson process over them (lazy Gumbel, Mussmann et al. 2017): arrivals in
    descending order, each at a random token, of which so many are made that a further one cannot win.
    """
    vocabulary_size = logits.shape[-1]
    reach = int((vocabulary_size * _CERTAINTY / _BLOCK_TOKENS) ** 0.5) + 1
    blocks = _best_blocks(logits, reach)
    likely = _opened(blocks)
    if blocks.chosen.shape[-1] == blocks.members.shape[-1]:
        noise = gumbel(random_bits(keys, likely.ids))
        return Candidates(_clamped(likely.ids, vocabulary_size), likely.logits, noise)
    arrivals = mx.arange(reach * _BLOCK_TOKENS, dtype=mx.uint32)[None]
    counters = [likely.ids, *(mx.broadcast_to(arrivals + start, (len(keys), arrivals.size)) for start in _STARTS)]
    bits = random_bits(keys, mx.concatenate(counters, axis=-1))
    likely_bits, arrival_bits, token_bits = mx.split(
        bits, [likely.ids.shape[-1], likely.ids.shape[-1] + arrivals.size], axis=-1
    )
    tokens = token_bits % vocabulary_size
    heights = -mx.log(mx.cumsum(exponential(arrival_bits), axis=-1) / vocabulary_size)
    heights = mx.where(_is_in_chosen(blocks, tokens), -mx.inf, heights)
    return Candidates(
        mx.concatenate([_clamped(likely.ids, vocabulary_size), tokens], axis=-1),
        mx.concatenate([likely.logits, mx.take_along_axis(logits, tokens, axis=-1)], axis=-1),
        mx.concatenate([gumbel(likely_bits), heights], axis=-1),
    )


_STARTS: Final = (_ARRIVALS_FROM, _TOKENS_FROM)


def _best_blocks(logits: mx.array, count: int) -> _Blocks:
    rows, vocabulary_size = logits.shape
    missing = -vocabulary_size % _BLOCK_TOKENS
    if missing:
        logits = mx.concatenate([logits, mx.full((rows, missing), -mx.inf, logits.dtype)], axis=-1)
    members = logits.reshape(rows, _BLOCK_TOKENS, -1)
    blocks = members.shape[-1]
    if count >= blocks:
        return _Blocks(members, mx.broadcast_to(mx.arange(blocks, dtype=mx.uint32)[None], (rows, blocks)))
    return _Blocks(members, mx.argpartition(-members.max(axis=1), count - 1, axis=-1)[:, :count])


def _opened(blocks: _Blocks) -> Ranked:
    """All members of the chosen blocks, in no order; ids beyond the vocabulary have logit -inf."""
    rows, size, count = blocks.members.shape
    starts = mx.arange(size, dtype=mx.uint32) * count
    ids = (blocks.chosen[:, None, :] + starts[None, :, None]).reshape(rows, -1)
    return Ranked(ids, mx.take_along_axis(blocks.members.reshape(rows, -1), ids, axis=-1))


def _is_in_chosen(blocks: _Blocks, tokens: mx.array) -> mx.array:
    rows, _, count = blocks.members.shape
    is_chosen = mx.put_along_axis(mx.zeros((rows, count), mx.bool_), blocks.chosen, mx.array(True), axis=-1)
    return mx.take_along_axis(is_chosen, tokens % count, axis=-1)


def _clamped(ids: mx.array, vocabulary_size: int) -> mx.array:
    """An id beyond the vocabulary comes up only when nothing is possible; forwarded, it would read foreign memory."""
    return mx.minimum(ids, vocabulary_size - 1) if vocabulary_size % _BLOCK_TOKENS else ids
