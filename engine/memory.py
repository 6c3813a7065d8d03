"""The device allocator: its limits, what it holds, and when its cache of free buffers is cleared."""

from typing import Final

import mlx.core as mx

from protocol.status import MemoryStatus

CLEAR_EVERY_STEPS: Final = 256
# Share of what Metal recommends that the allocator may keep as free buffers.
_CACHE_SHARE: Final = 0.1


class Allocator:
    """Clears free buffers on a cadence and at chunk boundaries, never per step: clearing stalls the device."""

    def __init__(self, weights_bytes: int) -> None:
        self._weights_bytes = weights_bytes
        self._steps = 0

    def step_done(self) -> None:
        """After a decode step."""
        self._steps += 1
        if self._steps % CLEAR_EVERY_STEPS == 0:
            mx.clear_cache()

    def chunk_done(self) -> None:
        """After a full prefill chunk, whose large buffers no decode step can use."""
        mx.clear_cache()

    def status(self, kv_bytes: int, ledger_bytes: int) -> MemoryStatus:
        """What is held now. kv_bytes: of the live rows' caches; ledger_bytes: what decoding rows' may take."""
        return MemoryStatus(
            active_bytes=mx.get_active_memory(),
            cache_bytes=mx.get_cache_memory(),
            peak_bytes=mx.get_peak_memory(),
            weights_bytes=self._weights_bytes,
            kv_bytes=kv_bytes,
            ledger_bytes=ledger_bytes,
        )


def limit_device_memory() -> None:
    """Sets Metal's limits explicitly; elsewhere MLX's own hold. The wired limit stays as it is:
    public reports of kernel panics end when it is not raised."""
    if not mx.metal.is_available():
        return
    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    mx.set_memory_limit(recommended)
    mx.set_cache_limit(int(recommended * _CACHE_SHARE))
