"""Each kind of cache on a whole model: rows together say what each says alone, and take what the ledger says."""

import mlx.core as mx
import pytest

from engine.cache import plan as plan_module
from engine.cache.layout import Layout
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of
from tests.parity.architectures import WINDOW
from tests.parity.kinds import ALL, KINDS, POSITIONED, QUANTIZED, WINDOWED, alone, driver_of, support_of

# Prompt length, tokens to say, turns before the next row comes.
Schedule = list[tuple[int, int, int]]


def _run(driver: LoopDriver, schedule: Schedule) -> list[list[int]]:
    for index, (length, count, turns) in enumerate(schedule):
        driver.submit(str(index), prompt_of(length, index), max_tokens=count)
        driver.turn(turns)
    driver.run_until_idle()
    return [driver.tokens(str(index)) for index in range(len(schedule))]


def _alone(kind: str, schedule: Schedule) -> list[list[int]]:
    return [alone(kind, length, index, count) for index, (length, count, _) in enumerate(schedule)]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("lengths", [(5, 17), (9, 31, 4, 20)])
def test_rows_that_start_together(kind: str, lengths: tuple[int, ...]) -> None:
    """C1: two and four rows of different lengths, decoded as a batch, not one by one."""
    schedule = [(length, 30, 0) for length in lengths]
    driver = driver_of(kind)
    assert support_of(kind).batching.mode == "batch"
    assert _run(driver, schedule) == _alone(kind, schedule)
    assert driver.turns < 2 * 30


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_come_and_go(kind: str) -> None:
    """C2: a longer and a shorter row join in mid decode, some leave, another joins."""
    schedule = [(20, 40, 0), (7, 10, 6), (33, 35, 15), (11, 20, 0)]
    assert _run(driver_of(kind), schedule) == _alone(kind, schedule)


@pytest.mark.parametrize("kind", WINDOWED)
@pytest.mark.parametrize("first", [3, 3 * WINDOW])
def test_three_join_early(kind: str, first: int) -> None:
    """C3: on a lone row's second token three join, shorter and longer than the window; all run past three wraps."""
    schedule = [(first, 40, 2), (2, 35, 0), (WINDOW, 30, 0), (5 * WINDOW + 3, 30, 0)]
    assert _run(driver_of(kind), schedule) == _alone(kind, schedule)


@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_left_when_all_leave(kind: str) -> None:
    """C4: the batch's last rows are cancelled in one turn; no cache stays, and the next row is served."""
    driver = driver_of(kind)
    for index in range(3):
        driver.submit(str(index), prompt_of(6 + 5 * index, index), max_tokens=50)
    driver.turn(5)
    assert driver.loop._batch.allocated_bytes > 0
    for index in range(3):
        driver.cancel(str(index))
    driver.turn()
    assert (driver.loop._batch.groups, driver.loop._batch.allocated_bytes) == ([], 0)
    driver.submit("next", prompt_of(9, 4), max_tokens=12)
    driver.run_until_idle()
    assert driver.tokens("next") == alone(kind, 9, 4, 12)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_caches_are_converted_between_forwards(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7: each layer once a row, at its first chunk's end; no step of decode converts anything."""
    driver = driver_of(kind)
    converted: list[int] = []
    original = plan_module.converted

    def recording(cache: object, scheme: object) -> object:
        converted.append(driver.turns)
        return original(cache, scheme)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(plan_module, "converted", recording)
    layers = len(support_of(kind).cache_plan.quantized)
    for index, length in enumerate([300, 1, 40]):
        driver.submit(str(index), prompt_of(length, index), max_tokens=60)
        driver.turn(12)
        assert len(converted) == (index + 1) * layers
    driver.run_until_idle()
    assert len(converted) == 3 * layers


@pytest.mark.parametrize("kind", POSITIONED)
def test_a_shared_position_would_be_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C9: with one scalar position for all rows, what padded rows say is no longer what they say alone."""
    # One by one: in a prompt that is padded as a whole, positions all shifted alike change nothing.
    schedule = [(17, 30, 2), (5, 30, 2), (9, 30, 0)]
    expected = _alone(kind, schedule)
    assert _run(driver_of(kind), schedule) == expected
    monkeypatch.setattr(Layout, "offset", property(lambda layout: layout.width))
    assert _run(driver_of(kind), schedule) != expected


@pytest.mark.parametrize("kind", ALL)
def test_memory_stays_under_the_ledger(kind: str) -> None:
    """B16: a long row beside seven short ones, in groups where the cost rule makes some; text is unchanged."""
    schedule = [(20 + index, 30, 0) for index in range(7)] + [(500, 20, 0)]
    expected = _alone(kind, schedule)
    driver = driver_of(kind, weights_bytes=1 << 16)
    mx.clear_cache()
    before_bytes = mx.get_active_memory()
    for index, (length, count, _) in enumerate(schedule):
        driver.submit(str(index), prompt_of(length, index), max_tokens=count)
    checked = 0
    driver.turn()
    while driver.live_ids():
        driver.turn()
        batch = driver.loop._batch
        if len(batch) == len(schedule):
            # What the step in flight needs for the while is not the ledger's.
            mx.synchronize()
            logits_bytes = 4 * len(batch) * driver.facts.vocabulary_size
            # Copies at the ends of prompts are counted by themselves: they would give way to a row.
            kept_bytes = driver.prefixes.status().size_bytes
            assert mx.get_active_memory() - before_bytes <= batch.ledger_bytes + kept_bytes + 3 * logits_bytes
            checked += 1
    assert checked > 10
    assert [driver.tokens(str(index)) for index in range(len(schedule))] == expected


def test_every_kind_is_a_model_that_batches() -> None:
    """The list is of kinds that exist."""
    assert {"plain", "sliding window", "chunked", "recurrent", "quantized"} <= set(KINDS)
    assert all(support_of(kind).batching.mode == "batch" for kind in ALL)
