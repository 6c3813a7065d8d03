"""The device allocator: its limits, what it holds, and when its cache of free buffers is cleared."""

import os
from pathlib import Path
from typing import Final

import mlx.core as mx

from protocol.status import MemoryStatus

CLEAR_EVERY_STEPS: Final = 256
# Share of what Metal recommends that the allocator may keep as free buffers.
_CACHE_SHARE: Final = 0.1
# Linux: `max`, or the bytes that all processes of a container may take.
_CONTAINER_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


class Allocator:
    """Clears free buffers on a cadence and at chunk boundaries, never per step: clearing stalls the device."""

    def __init__(self, weights_bytes: int, budget_bytes: int) -> None:
        self._weights_bytes = weights_bytes
        self._budget_bytes = budget_bytes
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
        """What is held now. kv_bytes: of the live rows' caches; ledger_bytes: what all rows may take in a turn."""
        return MemoryStatus(
            active_bytes=mx.get_active_memory(),
            cache_bytes=mx.get_cache_memory(),
            peak_bytes=mx.get_peak_memory(),
            weights_bytes=self._weights_bytes,
            kv_bytes=kv_bytes,
            ledger_bytes=ledger_bytes,
            budget_bytes=self._budget_bytes,
        )


def default_ceiling_bytes(weights_bytes: int) -> int:
    """What live rows and kept prefixes may take: half of what the weights leave of the device's memory.

    On a CPU a quarter: everything else on the machine lives there, too.
    """
    is_cpu = mx.default_device().type == mx.DeviceType.cpu
    return max(0, _device_memory_bytes(is_cpu=is_cpu) - weights_bytes) // (4 if is_cpu else 2)


def _device_memory_bytes(*, is_cpu: bool) -> int:
    """What Metal recommends, or else a GPU's own memory; on a CPU the machine's, or its container's."""
    info = {} if is_cpu else mx.device_info()
    for name in ("max_recommended_working_set_size", "memory_size", "total_memory"):
        if name in info:
            return int(info[name])
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CONTAINER_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return machine_bytes
    return min(machine_bytes, int(limit)) if limit.isdecimal() else machine_bytes


def limit_device_memory() -> None:
    """Sets Metal's limits explicitly; elsewhere MLX's own hold. The wired limit stays as it is:
    public reports of kernel panics end when it is not raised."""
    if not mx.metal.is_available():
        return
    recommended = int(mx.device_info()["max_recommended_working_set_size"])
    mx.set_memory_limit(recommended)
    mx.set_cache_limit(int(recommended * _CACHE_SHARE))
