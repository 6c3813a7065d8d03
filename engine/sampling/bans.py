"""What may not come up: ids outside the allowed ones, completions of bad words, stops before min_tokens.

A banned token's logit is -inf. Ids beyond the vocabulary never come up; written to, they would be foreign memory.
"""

import functools
from typing import NamedTuple

import mlx.core as mx

from engine.row import Row
from engine.sampling.history import NO_TOKEN

# Matches any token; a window's empty columns are NO_TOKEN, and match nothing else.
_ANY_TOKEN = NO_TOKEN - 1
_KEPT_MASKS = 64


class BadWords(NamedTuple):
    """Sequences of several ids, [Q] of them. at, places: of their rows in the batch and in the history.

    beginnings: [Q, W] uint32, all but the last id, right-aligned. ends: [Q], the last ids.
    """

    at: mx.array
    places: mx.array
    beginnings: mx.array
    ends: mx.array


class Bans(NamedTuple):
    """What is always banned for these rows. allowed: [A, V] bool for the rows allowed_at; None: nobody has any.

    single_at, single_ids: pairs of row and id; bad_words: depends on the tokens before.
    """

    allowed_at: mx.array
    allowed: mx.array | None
    single_at: mx.array
    single_ids: mx.array
    bad_words: BadWords | None


def bad_word_reach(row: Row) -> int:
    """Last tokens that the row's bad words look at; 0 without any of several ids."""
    return max((len(word) - 1 for word in row.submit.sampling.bad_words), default=0)


def plan_bans(rows: list[Row], seen: list[int], vocabulary_size: int) -> Bans | None:
    """The bans of the rows in batch order. seen: places of the rows that have a window, in its order."""
    settings = [row.submit.sampling for row in rows]
    allowed_at = [place for place, each in enumerate(settings) if each.allowed_ids]
    words = [(place, word) for place, each in enumerate(settings) for word in each.bad_words]
    singles = [(place, word[0]) for place, word in words if len(word) == 1 and word[0] < vocabulary_size]
    if not allowed_at and not words:
        return None
    masks = [_allowed_mask(settings[place].allowed_ids, vocabulary_size) for place in allowed_at]
    return Bans(
        allowed_at=mx.array(allowed_at, dtype=mx.uint32),
        allowed=mx.stack(masks) if masks else None,
        single_at=mx.array([place for place, _ in singles], dtype=mx.uint32),
        single_ids=mx.array([id_ for _, id_ in singles], dtype=mx.uint32),
        bad_words=_bad_words([(at, word) for at, word in words if len(word) > 1 and word[-1] < vocabulary_size], seen),
    )


def without_banned(logits: mx.array, bans: Bans, window: mx.array | None) -> mx.array:
    """logits [B, V] after the bans. window: [.., W], last tokens of the rows that have one."""
    if bans.allowed is not None:
        logits[bans.allowed_at] = mx.where(bans.allowed, logits[bans.allowed_at], -mx.inf)
    if bans.single_ids.size:
        logits[bans.single_at, bans.single_ids] = -mx.inf
    if bans.bad_words is not None and window is not None:
        words = bans.bad_words
        before = window[words.places][:, -words.beginnings.shape[-1] :]
        is_begun = ((words.beginnings == before) | (words.beginnings == _ANY_TOKEN)).all(axis=-1)
        logits = logits.at[words.at, words.ends].add(mx.where(is_begun, -mx.inf, 0.0))
    return logits


def without_early_stops(logits: mx.array, rows: list[Row]) -> mx.array:
    """Stop tokens of rows that are under their min_tokens become impossible; a grammar's mask sees to its own."""
    vocabulary_size = logits.shape[-1]
    pairs = [
        (place, id_)
        for place, row in enumerate(rows)
        if row.drawn < row.submit.min_tokens and row.grammar is None
        for id_ in row.stop_ids
        if id_ < vocabulary_size
    ]
    if not pairs:
        return logits
    masked = logits[:]
    masked[mx.array([place for place, _ in pairs]), mx.array([id_ for _, id_ in pairs])] = -mx.inf
    return masked


@functools.lru_cache(maxsize=_KEPT_MASKS)
def _allowed_mask(ids: tuple[int, ...], vocabulary_size: int) -> mx.array:
    """[V] bool. Kept, for a plan is made anew at each join."""
    mask = mx.zeros((vocabulary_size,), mx.bool_)
    mask[mx.array([id_ for id_ in ids if id_ < vocabulary_size], dtype=mx.uint32)] = True
    return mask


def _bad_words(words: list[tuple[int, tuple[int, ...]]], seen: list[int]) -> BadWords | None:
    if not words:
        return None
    width = max(len(word) for _, word in words) - 1
    beginnings = [[_ANY_TOKEN] * (width + 1 - len(word)) + list(word[:-1]) for _, word in words]
    return BadWords(
        at=mx.array([at for at, _ in words], dtype=mx.uint32),
        places=mx.array([seen.index(at) for at, _ in words], dtype=mx.uint32),
        beginnings=mx.array(beginnings, dtype=mx.uint32),
        ends=mx.array([word[-1] for _, word in words], dtype=mx.uint32),
    )
