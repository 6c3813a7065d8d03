"""What this frontend has counted since its start, for its /metrics: rows as the engine tells of them, and requests.

Owns the numbers; their names outside are prometheus's.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from frontend.stream import RowMailbox
from protocol.histogram import HistogramTally
from protocol.messages import Finish, FinishReason, RowDelta

# vLLM's buckets, so that its dashboards draw ours.
_FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2_560.0),
)
_TOKEN_S: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1_920.0, 7_680.0),
)
_TOKENS: Final = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))
_TOKEN_BYTES: Final = 4

# vLLM's words for how a request ends.
ENDINGS: Final[tuple[str, ...]] = ("stop", "length", "abort", "error")
_ENDING_OF: Final[Mapping[FinishReason, str]] = {
    "stop": "stop",
    "length": "length",
    "cancelled": "abort",
    "deadline": "abort",
    "lease_lost": "abort",
    "error": "error",
}


class HttpKey(NamedTuple):
    """Which requests are counted together. route: a path as it is registered, so that there are few."""

    route: str
    status: int


class Metrics:
    """Since the start. Every method is cheap enough for each token of each row."""

    def __init__(self) -> None:
        self.first_token_s = HistogramTally(_FIRST_TOKEN_S)
        self.request_s = HistogramTally(_REQUEST_S)
        self.between_tokens_s = HistogramTally(_TOKEN_S)
        self.per_token_s = HistogramTally(_TOKEN_S)
        self.queue_s = HistogramTally(_REQUEST_S)
        self.prefill_s = HistogramTally(_REQUEST_S)
        self.decode_s = HistogramTally(_REQUEST_S)
        self.prompt_tokens = HistogramTally(_TOKENS)
        self.generated_tokens = HistogramTally(_TOKENS)
        self.endings = Counter[str](dict.fromkeys(ENDINGS, 0))
        self.http = Counter[HttpKey]()

    def hear(self, delta: RowDelta, row: RowMailbox | None, now_s: float) -> None:
        """A row's news. row: None once its reply is done with it; its end counts all the same."""
        count = len(delta.tokens) // _TOKEN_BYTES
        if count and row is not None:
            if row.gained_at_s is not None:
                self.between_tokens_s.add((now_s - row.gained_at_s) / count, times=count)
            row.gained_at_s = now_s
        if delta.finish is not None:
            self._hear_end(delta.finish)

    def rows_lost(self, count: int) -> None:
        """Rows whose engine is gone: nobody will tell how they ended."""
        self.endings["error"] += count

    def request_done(self, key: HttpKey, started_s: float, first_token_s: float | None, ended_s: float) -> None:
        """An answered request, in monotonic seconds. first_token_s: None when it had none."""
        self.http[key] += 1
        if first_token_s is not None:
            self.first_token_s.add(first_token_s - started_s)
            self.request_s.add(ended_s - started_s)

    def _hear_end(self, finish: Finish) -> None:
        self.endings[_ENDING_OF[finish.reason]] += 1
        timings, usage = finish.timings, finish.usage
        self.queue_s.add(timings.queue_ms / 1e3)
        self.prompt_tokens.add(usage.prompt_tokens)
        self.generated_tokens.add(usage.completion_tokens)
        # A row that was ended before its first token has neither prefilled nor decoded to an end.
        if usage.completion_tokens:
            self.prefill_s.add(timings.prefill_ms / 1e3)
            self.decode_s.add(timings.decode_ms / 1e3)
        if usage.completion_tokens > 1:
            self.per_token_s.add(timings.decode_ms / 1e3 / (usage.completion_tokens - 1))
