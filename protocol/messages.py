"""Every message of the `requests` socket: one tagged union per direction (see README.md here).

Rules of change: a new field comes last and has a default; a field never changes its type or its
meaning; a removed field's name is not used again. Anything else is a new PROTOCOL_VERSION.
"""

from typing import Annotated, Literal, NewType

import msgspec
from msgspec import Meta

from protocol.errors import ErrorCode
from protocol.sampling import Sampling, TokenId

PROTOCOL_VERSION = 2
# A draft model guesses at most this many tokens in a step.
MAX_DRAFT_TOKENS = 32

SubmitId = NewType("SubmitId", str)
Epoch = NewType("Epoch", str)

Text = Annotated[str, Meta(max_length=1_000)]
ShortText = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=0, le=2**53)]

CancelReason = Literal["stop", "gone", "deadline", "user"]
FinishReason = Literal["stop", "length", "cancelled", "deadline", "lease_lost", "error"]
GoodbyeReason = Literal["shutting_down", "version_mismatch", "lease_lost"]
GrammarKind = Literal["json_object", "json_schema", "regex", "choice", "lark", "gbnf"]
ControlCommand = Literal["flush_prefixes", "mount_adapter", "unmount_adapter"]
BatchingMode = Literal["batch", "serial"]


class ToEngine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What a client sends. epoch: the engine start it was meant for; attempt: 0 at first, +1 per replay."""

    epoch: Annotated[str, Meta(min_length=1, max_length=64)]
    attempt: Count = 0


class FromEngine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What the engine sends to one client. epoch: the engine start that speaks."""

    epoch: str


# --- values inside messages -------------------------------------------------------------------


class TokenPrompt(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tokens"):
    """ids: u32 little-endian, 4 bytes a token."""

    ids: bytes


Prompt = TokenPrompt


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint on the output, as text; the engine compiles it."""

    kind: GrammarKind
    text: str


class LogprobsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """top: alternatives per emitted token; of_prompt: also for each prompt token."""

    top: Annotated[int, Meta(ge=0, le=20)] = 0
    of_prompt: bool = False


class TokenLogprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probability (natural logarithm) of one token. top_ids: u32 LE, most likely first; top: same order."""

    logprob: float
    top_ids: bytes = b""
    top: tuple[float, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one row; completion counts the ending EOS once."""

    prompt_tokens: Count
    completion_tokens: Count
    cached_tokens: Count = 0


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of one row in the engine: queue (Submit to first chunk), prefill, decode."""

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """How a row ended. stop_id: the EOS or stop token that ended it; code, message: only with `error`."""

    reason: FinishReason
    usage: Usage
    timings: Timings = Timings()
    stop_id: TokenId | None = None
    code: ErrorCode | None = None
    message: str = ""


class RowDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What one row gained since its last delta. tokens: u32 LE, without the EOS or stop token.

    prompt_logprobs: the next of the prompt's tokens; the first has None, for nothing stands before it.
    prefilled: how many of the tokens to compute before the first new one are computed. cached_tokens: of the prompt
    that were not computed again, told before the first token.
    """

    id: SubmitId
    tokens: bytes = b""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish: Finish | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    prefilled: Count | None = None
    cached_tokens: Count | None = None


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who says Hello. listens: where it serves, as URLs; shown by `engine-ctl status`."""

    name: ShortText
    pid: Count
    listens: Annotated[tuple[ShortText, ...], Meta(max_length=16)] = ()


class ParserNames(msgspec.Struct, frozen=True, kw_only=True):
    """The formats in which a client reads replies: of calls and of reasoning; None for none."""

    tools: ShortText | None = None
    reasoning: ShortText | None = None


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """Whether rows share steps, and why not when they do not."""

    mode: BatchingMode
    reason: str


class BosRule(msgspec.Struct, frozen=True, kw_only=True):
    """The beginning-of-sequence token of raw text prompts. add None: as the tokenizer file says."""

    id: TokenId | None = None
    add: bool | None = None


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What the model's generation_config.json says; None where it says nothing."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What this engine takes at most."""

    max_rows: Count
    max_waiting: Count
    max_frame_bytes: Count


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the engine knows of its model. sampling: the names of the Sampling fields it honours.

    draft_model: id of the one that guesses for it, None without. created: Unix seconds since when the model's files
    are there; 0 where that is not known. fingerprint: of what computes; with another one a seed may give other tokens.
    wants_snapshots: whether `snapshot_at` is of use: its caches cannot be cut to any prefix.
    model_context_length: what the model, or --context-length, allows; context_length is less where memory holds no
    longer row; 0: as long. kv_budget_bytes: of the memory for all rows' caches; 0: not told.
    """

    id: str
    aliases: tuple[str, ...] = ()
    path: str
    context_length: Count
    vocabulary_size: Count
    eos_ids: tuple[TokenId, ...]
    bos: BosRule
    defaults: GenerationDefaults
    batching: Batching
    limits: Limits
    dtype: str
    device: str
    sampling: tuple[str, ...] = ()
    draft_model: str | None = None
    created: Count = 0
    fingerprint: str = ""
    wants_snapshots: bool = False
    model_context_length: Count = 0
    kv_budget_bytes: Count = 0

    @property
    def memory_limit(self) -> str | None:
        """Why no row is as long as the model allows, and what to change; None when memory is not the reason."""
        if self.context_length >= self.model_context_length:
            return None
        return (
            f"the model has {self.model_context_length}, but {self.kv_budget_bytes} bytes for KV caches hold one "
            f"request of {self.context_length}: shorten it, raise --kv-cache-memory-bytes or use --kv-bits"
        )


class TokenizerFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the tokenizer folder; length in bytes."""

    name: str
    length_bytes: Count


class TokenizerManifest(msgspec.Struct, frozen=True, kw_only=True):
    """sha256: over all names and contents, in order; the key of the client's copy."""

    sha256: str
    files: tuple[TokenizerFile, ...]


# --- client to engine -------------------------------------------------------------------------


class Hello(ToEngine, frozen=True, kw_only=True, tag="hello"):
    """First message of a client in an epoch; answered by Welcome or Goodbye."""

    protocol_version: int
    client: ClientInfo


class Submit(ToEngine, frozen=True, kw_only=True, tag="submit"):
    """One choice of one request. group: shared by the choices of one prompt.

    max_tokens None: to the context's end. deadline_ms: from now, None for none. snapshot_at:
    prefix lengths worth keeping, ascending. generated: u32 LE, tokens delivered by an earlier
    attempt. seed: drawn by the client when the user gave none. draft_tokens: guesses of a draft model
    in each step, None for the engine's own number.
    """

    id: Annotated[SubmitId, Meta(min_length=1, max_length=256)]
    group: ShortText
    choice: Count = 0
    model: ShortText
    prompt: Prompt
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    sampling: Sampling = Sampling()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    stop_ids: Annotated[tuple[TokenId, ...], Meta(max_length=1_024)] = ()
    ignore_eos: bool = False
    min_tokens: Count = 0
    grammar: Grammar | None = None
    logprobs: LogprobsWanted | None = None
    priority: int = 0
    deadline_ms: Annotated[int, Meta(ge=1)] | None = None
    cache_salt: str | None = None
    adapter: str | None = None
    snapshot_at: tuple[Count, ...] = ()
    generated: bytes = b""
    draft_tokens: Annotated[int, Meta(ge=0, le=MAX_DRAFT_TOKENS)] | None = None


class Cancel(ToEngine, frozen=True, kw_only=True, tag="cancel"):
    """Ends a row. `stop` is a normal end found in the text; keep_tokens: prefix worth keeping."""

    id: SubmitId
    reason: CancelReason
    keep_tokens: Count = 0


class Ping(ToEngine, frozen=True, kw_only=True, tag="ping"):
    """Keeps the client's lease; sent every second. parsers: shown by `engine-ctl status`; None without a model."""

    parsers: ParserNames | None = None


class Leave(ToEngine, frozen=True, kw_only=True, tag="leave"):
    """Ends the client's lease, and with it all of its rows; the last message from its socket. Has no answer."""


class FetchTokenizer(ToEngine, frozen=True, kw_only=True, tag="fetch_tokenizer"):
    """Asks for one piece of a tokenizer file from offset_bytes on."""

    name: ShortText
    offset_bytes: Count = 0


class Control(ToEngine, frozen=True, kw_only=True, tag="control"):
    """An operator's command; answered by ControlDone with the same id."""

    id: ShortText
    command: ControlCommand
    argument: str = ""


# --- engine to client -------------------------------------------------------------------------


class Welcome(FromEngine, frozen=True, kw_only=True, tag="welcome"):
    """Answers Hello."""

    protocol_version: int
    facts: ModelFacts
    tokenizer: TokenizerManifest


class TokenizerChunk(FromEngine, frozen=True, kw_only=True, tag="tokenizer_chunk"):
    """data: at most 1 MiB of the file from offset_bytes on."""

    name: str
    offset_bytes: Count
    data: bytes
    is_last: bool


class Step(FromEngine, frozen=True, kw_only=True, tag="step"):
    """All of one client's rows that gained something in one engine step."""

    step: Count
    rows: tuple[RowDelta, ...]


class Rejected(FromEngine, frozen=True, kw_only=True, tag="rejected"):
    """A Submit that never ran (id), or a frame that could not be understood (id None)."""

    code: ErrorCode
    message: str
    id: SubmitId | None = None
    param: str | None = None
    retry_after_s: float | None = None


class ControlDone(FromEngine, frozen=True, kw_only=True, tag="control_done"):
    """error None: done. dropped_entries, dropped_bytes: prefixes that `flush_prefixes` made the engine forget."""

    id: str
    error: str | None = None
    dropped_entries: int = 0
    dropped_bytes: int = 0


class Goodbye(FromEngine, frozen=True, kw_only=True, tag="goodbye"):
    """The engine ends this client's connection, and with it all of its rows."""

    reason: GoodbyeReason
    message: str = ""


AnyToEngine = Hello | Submit | Cancel | Ping | Leave | FetchTokenizer | Control
AnyFromEngine = Welcome | TokenizerChunk | Step | Rejected | ControlDone | Goodbye
