"""What rows have gained since the last word to their clients. Tells nobody: that is delivery.py's."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.row import Row
from protocol.codec import MAX_PROMPT_LOGPROBS, pack_ids
from protocol.messages import Finish, RowDelta, TokenLogprobs


class Word(NamedTuple):
    """What a row emits, and its end. logprobs: of the tokens, if asked for. cached_tokens: with the first token."""

    row: Row
    tokens: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish: Finish | None = None
    cached_tokens: int | None = None

    def delta(self) -> RowDelta:
        """As it travels."""
        return RowDelta(
            id=self.row.key.id,
            tokens=pack_ids(self.tokens),
            logprobs=None if self.logprobs is None else tuple(self.logprobs),
            finish=self.finish,
            cached_tokens=self.cached_tokens,
        )


class Progress(NamedTuple):
    """How far a row's prompt is computed."""

    row: Row
    prefilled: int

    def delta(self) -> RowDelta:
        """As it travels."""
        return RowDelta(id=self.row.key.id, prefilled=self.prefilled)


class PromptPiece(NamedTuple):
    """A piece of a prompt's log-probabilities."""

    row: Row
    entries: Sequence[TokenLogprobs | None]

    def delta(self) -> RowDelta:
        """As it travels."""
        return RowDelta(id=self.row.key.id, prompt_logprobs=tuple(self.entries))


AnyWord = Word | Progress | PromptPiece


class Outbox:
    """Collects tokens and finishes by row, in the order in which rows first gained something."""

    def __init__(self) -> None:
        self._tokens: dict[Row, list[int]] = {}
        self._logprobs: dict[Row, list[TokenLogprobs]] = {}
        self._finishes: dict[Row, Finish] = {}
        self._prompts: dict[Row, Sequence[TokenLogprobs | None]] = {}
        self._prefilled: dict[Row, int] = {}
        self._cached: dict[Row, int] = {}

    def add_progress(self, row: Row) -> None:
        """How far the row's prompt is computed; told while nothing else can be."""
        self._prefilled[row] = row.prefilled

    def add_cached(self, row: Row) -> None:
        """How much of the row's prompt was there already, if any; told with its first token."""
        if row.cached_tokens:
            self._cached[row] = row.cached_tokens

    def add_prompt_logprobs(self, row: Row, entries: Sequence[TokenLogprobs | None]) -> None:
        """Of all of the row's prompt tokens; told before its first token."""
        self._prompts[row] = entries

    def add_token(self, row: Row, token: int, logprobs: TokenLogprobs | None) -> None:
        """A token that the row emits. logprobs: for a row that asked."""
        self._tokens.setdefault(row, []).append(token)
        if logprobs is not None:
            self._logprobs.setdefault(row, []).append(logprobs)

    def add_finish(self, row: Row, finish: Finish) -> None:
        """The row's last word."""
        self._tokens.setdefault(row, [])
        self._finishes[row] = finish

    def forget(self, row: Row) -> None:
        """Drops what is here of a row whose end is told without it."""
        for kept in (self._tokens, self._logprobs, self._finishes, self._prompts, self._prefilled, self._cached):
            kept.pop(row, None)

    def take_prompts(self) -> Iterator[PromptPiece]:
        """Hands over what goes ahead, each in a Step of its own: one frame does not hold those of a long prompt."""
        prompts, self._prompts = self._prompts, {}
        for row, entries in prompts.items():
            for start in range(0, len(entries), MAX_PROMPT_LOGPROBS):
                yield PromptPiece(row, entries[start : start + MAX_PROMPT_LOGPROBS])

    def take(self) -> dict[bytes, list[AnyWord]]:
        """Hands over all else, by client."""
        by_client: dict[bytes, list[AnyWord]] = {}
        for row, prefilled in self._prefilled.items():
            by_client.setdefault(row.key.client, []).append(Progress(row, prefilled))
        self._prefilled.clear()
        for row, tokens in self._tokens.items():
            word = Word(row, tokens, self._logprobs.get(row), self._finishes.get(row), self._cached.pop(row, None))
            by_client.setdefault(row.key.client, []).append(word)
        self._tokens, self._logprobs, self._finishes = {}, {}, {}
        return by_client
