"""What one engine process can be told; the field is the option. Learned facts are other types."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.endpoint import LEASE_S, default_runtime_path
from protocol.messages import MAX_DRAFT_TOKENS

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process: one model, one device, one runtime folder."""

    model: Annotated[str, Meta(min_length=1, description="model folder, or a Hugging Face id such as org/name")]
    runtime_dir: Annotated[str, Meta(min_length=1, description="folder for sockets, lock and state")] = msgspec.field(
        default_factory=lambda: str(default_runtime_path())
    )
    model_id: Annotated[
        str | None, Meta(description="name served for the model; default: the Hugging Face id or the folder's name")
    ] = None
    served_model_name: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...],
        Meta(description="another name the model answers to; repeatable; * takes any name"),
    ] = ()
    max_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="requests decoded together at most",
            extra={"aliases": ("--decode-concurrency",)},
        ),
    ] = 32
    max_waiting: Annotated[int, Meta(ge=1, le=100_000, description="requests queued at most")] = 1_024
    prefill_step_size: (
        Annotated[int, Meta(ge=1, le=65_536, description="prompt tokens in one chunk; default: by device")] | None
    ) = None
    prompt_concurrency: (
        Annotated[int, Meta(ge=1, description="short prompts computed as one chunk at most; default: what fits")] | None
    ) = None
    kv_cache_memory_bytes: (
        Annotated[int, Meta(ge=1, description="of live rows' caches and kept prefixes together; default: by device")]
        | None
    ) = None
    prompt_cache_bytes: (
        Annotated[int, Meta(ge=0, description="of kept prefixes at most; default: what live rows leave")] | None
    ) = None
    prompt_cache_size: Annotated[int, Meta(ge=0, description="prefixes kept at most; default: what fits")] | None = None
    context_length: Annotated[int, Meta(ge=2, description="a lower limit than the model's own, in tokens")] | None = (
        None
    )
    dtype: Annotated[DtypeName, Meta(description="of weights; auto: float32 on CPU, else the model's own")] = "auto"
    kv_bits: Annotated[int, Meta(description="bits of keys and values in the KV cache: 4 or 8")] | None = None
    kv_group_size: (
        Annotated[int, Meta(description="values that share a scale with --kv-bits: 32, 64 or 128; left out: 64")] | None
    ) = None
    quantized_kv_start: (
        Annotated[int, Meta(ge=0, description="with --kv-bits: tokens before which a row is not quantized")] | None
    ) = None
    kv_scheme: (
        Annotated[Literal["config"], Meta(description="config: bits per layer, from the model's kv_config.json")] | None
    ) = None
    adapter_path: (
        Annotated[str, Meta(min_length=1, description="folder of an adapter for requests that name none")] | None
    ) = None
    adapter: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="NAME=FOLDER: an adapter that requests may name; repeatable"),
    ] = ()
    draft_model: (
        Annotated[str, Meta(min_length=1, description="model whose guesses a lone greedy request takes")] | None
    ) = None
    draft_model_id: Annotated[str | None, Meta(description="name of the draft model; default: as given")] = None
    num_draft_tokens: Annotated[int, Meta(ge=0, le=MAX_DRAFT_TOKENS, description="guesses in a step; 0 is off")] = 3
    step_limit_s: Annotated[float, Meta(gt=0, description="age of a device step that ends the process")] = 120.0
    lease_s: Annotated[float, Meta(gt=0, description="silence after which a frontend's rows end")] = LEASE_S
    grace_s: Annotated[float, Meta(ge=0, description="time for running rows to finish at a stop")] = 30.0
    restarts: Annotated[int, Meta(ge=0, description="how often the supervisor has restarted this engine")] = 0
    exit_with_parent: Annotated[bool, Meta(description="stop when the parent process is gone")] = False
    trust_remote_code: Annotated[bool, Meta(description="run Python code that comes with the model")] = False
    log_level: Annotated[LogLevel, Meta(description="least level logged")] = "info"
