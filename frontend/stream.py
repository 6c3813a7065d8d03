"""One row's mailbox between the wire and the handler that serves it: one slot, into which news merge.

Owns what a row has brought and was not yet taken; the session fills it, one handler empties it.
"""

import array
import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.codec import unpack_ids
from protocol.errors import ErrorCode
from protocol.messages import Finish, RowDelta, Submit, TokenLogprobs

# A consumer this far behind has stopped reading: at 100 tokens a second it is 40 s late.
MAX_PENDING_TOKENS: Final = 4_096
# With twenty alternatives each, about a millisecond's work.
PROMPT_ENTRIES_PER_TAKE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    """Why a row ended without a Finish. retry_after_s: seconds after which trying again may help."""

    code: ErrorCode
    message: str
    param: str | None = None
    retry_after_s: float | None = None


RowEnd = Finish | RowFailure


@dataclass(frozen=True, slots=True)
class RowNews:
    """What a row gained since the last take. end: the one last thing of the row, None while it runs.

    logprobs: of the ids, prompt_logprobs: of the next tokens of the prompt; both only for a row that asked.
    """

    ids: list[int]
    end: RowEnd | None
    logprobs: Sequence[TokenLogprobs] = ()
    prompt_logprobs: Sequence[TokenLogprobs | None] = ()


class RowMailbox:
    """Token ids accumulate, the first end is latched. The bell, shared by a reply's rows, wakes their handler."""

    def __init__(self, submit: Submit, bell: asyncio.Event) -> None:
        self.submit = submit
        # What a replay on another engine must not generate again.
        self.delivered_ids = array.array("I")
        # When its last tokens came, in monotonic seconds: for the metrics.
        self.gained_at_s: float | None = None
        # Prompt tokens that are computed, as far as the engine has told.
        self.prefilled = 0
        # Of the prompt that were not computed again, as soon as the engine has told.
        self.cached_tokens = 0
        self._bell = bell
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._prompt_logprobs: deque[TokenLogprobs | None] = deque()
        self._end: RowEnd | None = None
        self._is_end_taken = False

    @property
    def has_ended(self) -> bool:
        """Whether the row is over, taken or not."""
        return self._end is not None

    @property
    def is_overfull(self) -> bool:
        """Whether its consumer has fallen more than MAX_PENDING_TOKENS behind."""
        return len(self._ids) > MAX_PENDING_TOKENS

    def put_delta(self, delta: RowDelta) -> None:
        """Merges a delta into the slot; the caller rings. What comes after the end is dropped."""
        if self._end is not None:
            return
        if delta.tokens:
            self._ids += unpack_ids(delta.tokens)
            if delta.logprobs is not None:
                self._logprobs += delta.logprobs
        if delta.prefilled is not None:
            self.prefilled = delta.prefilled
        if delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs += delta.prompt_logprobs
        self._end = delta.finish

    def ring(self) -> None:
        """Wakes the handler to take what has come."""
        self._bell.set()

    def put_failure(self, failure: RowFailure) -> None:
        """Ends the row, unless it has ended, and rings."""
        if self._end is None:
            self._end = failure
            self._bell.set()

    def take(self) -> RowNews | None:
        """Empties the slot; None when nothing has come. An end is told once.

        What was told of the prompt comes first and in small pieces: making text of all of it would take too long.
        """
        if self._prompt_logprobs:
            count = min(len(self._prompt_logprobs), PROMPT_ENTRIES_PER_TAKE)
            return RowNews([], None, prompt_logprobs=[self._prompt_logprobs.popleft() for _ in range(count)])
        end = None if self._is_end_taken else self._end
        if not self._ids and end is None:
            return None
        ids, self._ids = self._ids, []
        self._is_end_taken = end is not None
        self.delivered_ids.extend(ids)
        if not self._logprobs:
            return RowNews(ids, end)
        logprobs, self._logprobs = self._logprobs, []
        return RowNews(ids, end, logprobs)
