"""Speculative decoding: a lone greedy row takes what a draft model guessed, as far as the model itself says the same.

Leviathan et al. 2023 ("Fast Inference from Transformers via Speculative Decoding"), for temperature 0, where it never
changes what is said. A row that gets company goes on in the batch; one that is alone again catches up and goes on
here. Owns the draft model's caches; the row's own are the group's.
"""

import time
from typing import Any

import mlx.nn as nn
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache, trim_prompt_cache

from engine import decode
from engine.batch import Group
from engine.cache.chunked import left_in_chunk
from engine.model.draft import DraftModel
from engine.retire import Roster, Tally
from engine.row import Row
from protocol.messages import MAX_DRAFT_TOKENS


class Speculator:
    """One per loop with a draft model. draft_tokens: guesses a step where a request says nothing."""

    def __init__(self, draft: DraftModel, draft_tokens: int, chunk_tokens: int) -> None:
        self._model = draft.model
        self.weights_bytes = draft.weights_bytes
        self._vocabulary_size = draft.vocabulary_size
        self._draft_tokens = draft_tokens
        self._chunk_tokens = chunk_tokens
        self._row: Row | None = None
        self._caches: list[Any] = []
        self._fed_tokens = 0
        self._is_given_up = False

    def can_advance(self, group: Group) -> bool:
        """Whether its one row may be guessed at: greedy without other settings, and in caches that can be cut."""
        (row,) = group.rows
        count = self._count(row)
        return (
            count > 0
            and group.plan.is_argmax
            and row.grammar is None
            and row.submit.logprobs is None
            and _can_take_back(group.caches, count + 1)
            and not (row is self._row and self._is_given_up)
        )

    def advance(self, model: nn.Module, group: Group, roster: Roster, tally: Tally) -> bool:
        """Whether the row got tokens, or has ended; if not, a plain step is due. Its register has been read."""
        (row,) = group.rows
        if row.key not in roster.rows:
            return True
        count = min(self._count(row), row.limit - row.emitted - 1)
        if count < 1 or not self._catch_up(row):
            return False
        # A guess that is taken back must leave the draft the chunk that the next one sees.
        count = left_in_chunk(self._caches, row.known_count, count)
        unread = row.known_from(self._fed_tokens)
        guesses = decode.draft(self._model, self._caches, unread, count, self._vocabulary_size)
        said = decode.verify(model, group, [unread[-1], *guesses])
        agreed = next((at for at, guess in enumerate(guesses) if guess != said[at]), count)
        self._fed_tokens = row.known_count + min(agreed, count - 1)
        trim_prompt_cache(self._caches, max(0, count - 1 - agreed))
        trim_prompt_cache(group.caches, count - agreed)
        group.layout.advance(agreed + 1)
        tally.drafted_tokens += count
        tally.accepted_tokens += agreed
        self._tell(row, said[: agreed + 1], roster)
        group.go_on_from([said[agreed]])
        return True

    def forget(self, ended: set[Row]) -> None:
        """Frees what the draft model holds of a row that has ended."""
        if self._row in ended:
            self.drop()

    @property
    def allocated_bytes(self) -> int:
        """Of the draft model's caches."""
        return sum(cache.nbytes for cache in self._caches)

    def drop(self) -> None:
        """Frees the draft model's caches; a row that is alone again catches up."""
        self._row, self._caches, self._fed_tokens = None, [], 0

    def _count(self, row: Row) -> int:
        wanted = row.submit.draft_tokens
        return self._draft_tokens if wanted is None else wanted

    def _catch_up(self, row: Row) -> bool:
        """Whether the draft model has read all but at most a chunk of the row; reads one chunk more where not."""
        if row is not self._row:
            self._row, self._caches, self._fed_tokens = row, make_prompt_cache(self._model), 0
            # All at once: a token that stands far behind would else be found after the work on those before it.
            self._is_given_up = not self._can_read(row.known_from(0))
        unread_count = row.known_count - self._fed_tokens
        if not _can_take_back(self._caches, unread_count + MAX_DRAFT_TOKENS):
            self._is_given_up = True
        if self._is_given_up:
            return False
        chunk = row.known_from(self._fed_tokens, self._fed_tokens + self._chunk_tokens)
        if not self._can_read(chunk):
            self._is_given_up = True
            return False
        if unread_count <= self._chunk_tokens:
            return True
        decode.feed(self._model, self._caches, chunk)
        self._fed_tokens += len(chunk)
        return False

    def _can_read(self, tokens: list[int]) -> bool:
        return max(tokens) < self._vocabulary_size

    @staticmethod
    def _tell(row: Row, tokens: list[int], roster: Roster) -> None:
        now = time.monotonic()
        for token in tokens:
            row.drawn += 1
            if not roster.take_token(row, token, now):
                return


def _can_take_back(caches: list[Any], tokens: int) -> bool:
    """Whether so many tokens can be written and cut off again: a window that is full forgets what it overwrites."""
    windows = [cache for cache in caches if getattr(cache, "max_size", None) is not None]
    return can_trim_prompt_cache(caches) and all(cache.offset + tokens < cache.max_size for cache in windows)
