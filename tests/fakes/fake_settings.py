"""What a FakeEngine can be told: each field is an option of its process."""

from typing import Literal

import msgspec

from protocol.endpoint import LEASE_S


class FakeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A scripted engine. model: folder of a tokenizer, built in the runtime folder when not given.

    cached_tokens: of each prompt, said to be there already.
    """

    runtime_dir: str
    model: str = ""
    model_id: str = "fake-model"
    max_rows: int = 8
    max_waiting: int = 64
    context_length: int = 2_048
    step_ms: float = 2.0
    prefill_tokens_per_turn: int = 64
    status_ms: float = 50.0
    load_s: float = 0.0
    lease_s: float = LEASE_S
    grace_s: float = 5.0
    adapters: tuple[str, ...] = ()
    cached_tokens: int = 0
    wants_snapshots: bool = False
    model_context_length: int = 0
    kv_budget_bytes: int = 0
    log_level: Literal["debug", "info", "warning"] = "info"
