"""Random lives of the prefix cache on whole models: rows find, leave and share prefixes while others are cancelled."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import decode, prefill
from engine.prefix.store import StoreLimits
from protocol.messages import CancelReason
from tests.fakes.loop_driver import OFF
from tests.fakes.models import prompt_of
from tests.parity.kinds import QUANTIZED, driver_of

KINDS = ["plain", "sliding window", "chunked", "hybrid", "composite", "quantized", "quantized sliding window"]
CHUNK = 16
MOST_TOKENS = 24
SHARED = 40


@functools.cache
def _prompts(kind: str) -> tuple[tuple[int, ...], ...]:
    """Some with a common beginning, one the next turn of another one's conversation."""
    base = prompt_of(SHARED)
    first = (*base, 7, 8)
    said = _alone(kind, first)
    turn = (*first, *said[:20], *prompt_of(9, 5))
    parted = tuple((*base[:length], *prompt_of(13, length)) for length in (5, 17, 32, SHARED))
    return (first, turn, *parted, tuple(base), tuple(prompt_of(6, 9)), tuple(prompt_of(70, 3)))


@functools.cache
def _alone(kind: str, prompt: tuple[int, ...]) -> list[int]:
    """What a row says that computes everything."""
    driver = driver_of(kind, chunk_tokens=CHUNK, prefixes=OFF)
    driver.submit("row", list(prompt), max_tokens=MOST_TOKENS)
    driver.run_until_idle()
    return driver.tokens("row")


@functools.cache
def _kept_bytes(kind: str) -> int:
    """Of one row's caches: its last snapshot's, or its reply's."""
    driver = driver_of(kind, chunk_tokens=CHUNK)
    driver.submit("row", list(_prompts(kind)[0]), max_tokens=MOST_TOKENS)
    driver.run_until_idle()
    return max(entry.size_bytes for entry in driver.prefixes._store)


SNAPSHOTS = st.lists(st.sampled_from([5, 17, 32, SHARED, 55]), max_size=4, unique=True).map(sorted)
# Prompt, tokens to say, snapshots, salt, turns before the next step.
SUBMIT = st.tuples(
    st.just("submit"),
    st.integers(0, 8),
    st.integers(1, MOST_TOKENS),
    SNAPSHOTS,
    st.sampled_from((None, None, None, "mine")),
    st.sampled_from((0, 1, 2, 5, 40)),
)
# Which of the rows that live, how, and how much of it is kept.
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 4), st.sampled_from(["gone", "user", "stop"]), st.integers(0, 60))
RARE = st.one_of(st.tuples(st.just("flush")), st.tuples(st.just("fault"), st.sampled_from(["copy", "chunk", "read"])))
STEPS = st.lists(st.one_of(SUBMIT, SUBMIT, SUBMIT, SUBMIT, CANCEL, RARE), min_size=12, max_size=24)
# Times what one row keeps.
ROOMS = st.sampled_from((2, 6, 1_000))


class _Life:
    """One loop, and what each of its rows should say. Faults: those that the next call of that name raises."""

    def __init__(self, kind: str, room: int, patch: pytest.MonkeyPatch) -> None:
        self.kind = kind
        limits = StoreLimits(1 << 30, None, room * _kept_bytes(kind))
        self.driver = driver_of(kind, chunk_tokens=CHUNK, prefixes=limits)
        self.expected: dict[str, list[int]] = {}
        self.faults: set[str] = set()
        for name, (module, function) in {
            "copy": (prefill, "launch_copy"),
            "chunk": (prefill, "launch_chunk"),
            "read": (decode, "read"),
        }.items():
            patch.setattr(module, function, self._failing(name, getattr(module, function)))

    def _failing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if name in self.faults:
                self.faults.discard(name)
                raise RuntimeError(f"the device is out: {name}")
            return original(*arguments)

        return call

    def submit(self, prompt: int, count: int, snapshots: list[int], salt: str | None, turns: int) -> None:
        id_, ids = str(len(self.expected)), _prompts(self.kind)[prompt]
        self.expected[id_] = _alone(self.kind, ids)[:count]
        asked = tuple(length for length in snapshots if length < len(ids))
        self.driver.submit(id_, list(ids), max_tokens=count, snapshot_at=asked, cache_salt=salt)
        self.turn(turns)

    def cancel(self, which: int, reason: CancelReason, keep_tokens: int) -> None:
        for id_ in self.driver.live_ids()[which : which + 1]:
            self.driver.cancel(id_, reason, keep_tokens=keep_tokens if reason == "stop" else 0)
            self.turn(1)

    def turn(self, count: int) -> None:
        for _ in range(count):
            self.driver.turn()
            self.check()

    def flush(self) -> None:
        self.driver.control("flush_prefixes", "")
        self.turn(1)

    def fault(self, name: str) -> None:
        self.faults.add(name)

    def check(self) -> None:
        """What is reported is what is held, within the ceiling."""
        store = self.driver.prefixes._store
        held = [sum(cache.nbytes for cache in entry.caches) for entry in store]
        assert [entry.size_bytes for entry in store] == held
        status = self.driver.prefixes.status()
        assert (status.entries, status.size_bytes) == (len(held), sum(held))
        assert status.size_bytes <= (store._limits.kept_bytes or 0)

    def end(self) -> None:
        """All rows come to an end of their own; none says what it would not say alone."""
        while self.driver.live_ids() or self.driver.mailbox.incoming:
            self.turn(1)
            assert self.driver.turns < 5_000
        for id_, expected in self.expected.items():
            finish, told = self.driver.finish(id_), self.driver.tokens(id_)
            assert told == (expected if finish.reason == "length" else expected[: len(told)]), id_


def _check(kind: str, steps: list[Any], room: int) -> None:
    for ids in _prompts(kind):
        _alone(kind, ids)
    with pytest.MonkeyPatch.context() as patch:
        life = _Life(kind, room, patch)
        for step, *arguments in steps:
            # Beside others a quantized row's reply is close to what it says alone, not the same: no two live at once.
            if kind in QUANTIZED and step == "submit":
                life.driver.run_until_idle(5_000)
            getattr(life, step)(*arguments)
        life.end()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(steps=STEPS, room=ROOMS)
def test_any_life_of_the_cache_leaves_each_row_its_text(kind: str, steps: list[Any], room: int) -> None:
    """E4, E6 to E9: hits, snapshots, cancels, faults, evictions and flushes in any order."""
    _check(kind, steps, room)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(steps=STEPS, room=ROOMS)
def test_any_long_life_of_the_cache_leaves_each_row_its_text(kind: str, steps: list[Any], room: int) -> None:
    """The same over many more of them."""
    _check(kind, steps, room)
