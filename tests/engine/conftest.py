"""Fixtures of the engine's tests."""

from engine import openblas  # isort: skip  # noqa: F401  # before MLX

from typing import Any

import pytest

from engine import decode, prefill
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import tiny_model


@pytest.fixture
def driver() -> LoopDriver:
    """A loop over a tiny llama."""
    return LoopDriver(tiny_model("llama"))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the loop asks of the device, in order."""
    recorded: list[str] = []

    def record(module: Any, name: str) -> None:
        original = getattr(module, name)

        def recording(*arguments: Any) -> Any:
            recorded.append(name)
            return original(*arguments)

        monkeypatch.setattr(module, name, recording)

    for module, name in (
        (decode, "launch_forward"),
        (decode, "launch_sample"),
        (decode, "read"),
        (prefill, "launch_chunk"),
        (prefill, "launch_together"),
        (prefill, "first_token"),
    ):
        record(module, name)
    return recorded
