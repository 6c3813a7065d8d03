"""What the engine pushes on the `status` socket, twice a second or more, also while it loads or is stuck."""

from typing import Literal

import msgspec

from protocol.messages import Batching, ParserNames

Phase = Literal["starting", "loading", "warming", "ready", "draining", "stopping", "failed"]


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Live rows by state; nothing of a waiting one is computed. oldest_waiting_ms: since the first came, 0 for none.

    waiting_for_memory: of the waiting ones, those that would start if there were room for their caches.
    """

    waiting: int = 0
    prefilling: int = 0
    decoding: int = 0
    oldest_waiting_ms: float = 0.0
    waiting_for_memory: int = 0


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """Values since the start, by bucket. bounds: upper ends, ascending; counts: one more, for what lies above them."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sum: float = 0.0


class StepStatus(msgspec.Struct, frozen=True, kw_only=True):
    """count: steps since start; age_ms: since the running turn began, 0 when idle; last_ms: the last full step.

    times_ms: of all steps. gaps_ms: between two tokens of running rows: a step, and what was prefilled before it.
    """

    count: int = 0
    age_ms: float = 0.0
    last_ms: float = 0.0
    times_ms: Histogram = Histogram()
    gaps_ms: Histogram = Histogram()


class TokenStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Totals since start, and generated tokens per second over the last seconds. drafted: guesses of a draft model."""

    prompt_total: int = 0
    generated_total: int = 0
    generated_per_s: float = 0.0
    drafted_total: int = 0
    accepted_total: int = 0


class MemoryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as the device allocator counts them; kv: live rows' caches. ledger: what all rows may take in the
    coming turn, caches and what is computed; budget: over it and kept prefixes.
    """

    active_bytes: int = 0
    cache_bytes: int = 0
    peak_bytes: int = 0
    weights_bytes: int = 0
    kv_bytes: int = 0
    ledger_bytes: int = 0
    budget_bytes: int = 0


class PrefixStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix cache: what it holds, and how often rows found in it what they begin with, since start.

    limit_bytes: over live rows' caches and entries; 0: it is off. hits: rows that began with something computed
    before, misses: those that did not. queried_tokens: of the prompts of both, hit_tokens: of them not computed.
    Hits by how: exact: all of the prompt but its last token; snapshot: a whole entry; cut: a part of one; live: of a
    row that was still running. unasked: rows that had to compute their whole prompt. reason: why nothing is kept.
    """

    entries: int = 0
    size_bytes: int = 0
    limit_bytes: int = 0
    evictions: int = 0
    hits: int = 0
    misses: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    exact: int = 0
    snapshot: int = 0
    cut: int = 0
    live: int = 0
    unasked: int = 0
    reason: str = ""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Since start. submitted = finished + cancelled + failed + rejected + live rows.

    preemptions: how often a row gave its caches back for want of memory, and went on later.
    """

    submitted: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    rejected: int = 0
    malformed_frames: int = 0
    stale_messages: int = 0
    preemptions: int = 0


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The served model. model_context_length: its own; context_length is less where memory holds no longer row."""

    id: str
    path: str
    dtype: str = ""
    device: str = ""
    context_length: int = 0
    max_rows: int = 0
    model_context_length: int = 0


class FrontendStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A client that holds a lease. silent_s: since it was last heard. parsers: as it says itself."""

    name: str
    pid: int
    listens: tuple[str, ...] = ()
    rows: int = 0
    silent_s: float = 0.0
    parsers: ParserNames | None = None


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="status"):
    """A whole picture; a reader needs no earlier one. phase_detail: one line, e.g. the last error.

    adapters: names of those that are mounted.
    """

    epoch: str
    protocol_version: int
    pid: int
    phase: Phase
    phase_detail: str = ""
    uptime_s: float = 0.0
    restarts: int = 0
    model: ModelStatus | None = None
    batching: Batching | None = None
    rows: RowCounts = RowCounts()
    step: StepStatus = StepStatus()
    tokens: TokenStatus = TokenStatus()
    memory: MemoryStatus = MemoryStatus()
    counters: Counters = Counters()
    frontends: tuple[FrontendStatus, ...] = ()
    adapters: tuple[str, ...] = ()
    prefix: PrefixStatus = PrefixStatus()
