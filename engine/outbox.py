"""What rows have gained since the last word to their clients: one Step per client, sent by the loop."""

from collections.abc import Sequence

from engine.mailbox import Mailbox
from engine.row import Row, RowKey
from protocol.codec import MAX_PROMPT_LOGPROBS, pack_ids
from protocol.messages import Epoch, Finish, RowDelta, Step, TokenLogprobs


class Outbox:
    """Collects tokens and finishes by row, in the order in which rows first gained something."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._tokens: dict[RowKey, list[int]] = {}
        self._logprobs: dict[RowKey, list[TokenLogprobs]] = {}
        self._finishes: dict[RowKey, Finish] = {}
        self._prompts: dict[RowKey, Sequence[TokenLogprobs | None]] = {}
        self._prefilled: dict[RowKey, int] = {}
        self._cached: dict[RowKey, int] = {}

    def add_progress(self, row: Row) -> None:
        """How far the row's prompt is computed; told while nothing else can be."""
        self._prefilled[row.key] = row.prefilled

    def add_cached(self, row: Row) -> None:
        """How much of the row's prompt was there already, if any; told with its first token."""
        if row.cached_tokens:
            self._cached[row.key] = row.cached_tokens

    def add_prompt_logprobs(self, row: Row, entries: Sequence[TokenLogprobs | None]) -> None:
        """Of all of the row's prompt tokens; told before its first token."""
        self._prompts[row.key] = entries

    def add_token(self, row: Row, token: int, logprobs: TokenLogprobs | None) -> None:
        """A token that the row emits. logprobs: for a row that asked."""
        self._tokens.setdefault(row.key, []).append(token)
        if logprobs is not None:
            self._logprobs.setdefault(row.key, []).append(logprobs)

    def add_finish(self, row: Row, finish: Finish) -> None:
        """The row's last word."""
        self._tokens.setdefault(row.key, [])
        self._finishes[row.key] = finish

    def flush(self, mailbox: Mailbox, step: int) -> None:
        """Sends each client its Step. step: number of the engine step.

        A prompt's log-probabilities go ahead, in Steps of their own: one frame does not hold those of a long prompt.
        """
        for key, entries in self._prompts.items():
            for start in range(0, len(entries), MAX_PROMPT_LOGPROBS):
                piece = tuple(entries[start : start + MAX_PROMPT_LOGPROBS])
                delta = RowDelta(id=key.id, prompt_logprobs=piece)
                mailbox.tell(key.client, Step(epoch=self._epoch, step=step, rows=(delta,)))
        self._prompts.clear()
        by_client: dict[bytes, list[RowDelta]] = {}
        for key, prefilled in self._prefilled.items():
            by_client.setdefault(key.client, []).append(RowDelta(id=key.id, prefilled=prefilled))
        self._prefilled.clear()
        for key, tokens in self._tokens.items():
            logprobs = self._logprobs.get(key)
            delta = RowDelta(
                id=key.id,
                tokens=pack_ids(tokens),
                logprobs=None if logprobs is None else tuple(logprobs),
                finish=self._finishes.get(key),
                cached_tokens=self._cached.pop(key, None),
            )
            by_client.setdefault(key.client, []).append(delta)
        self._tokens, self._logprobs, self._finishes = {}, {}, {}
        for client, rows in by_client.items():
            mailbox.tell(client, Step(epoch=self._epoch, step=step, rows=tuple(rows)))
