"""Random schedules on whole models: rows join, decode, wrap their windows and leave, and each says its solo text."""

import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import make_prompt_cache

from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import WINDOW, random_model
from tests.parity.oracle import solo_tokens

# One of each mix of kinds.
NAMES = ["gemma3_text", "qwen3_next", "falcon_h1", "llama4"]
MOST_TOKENS = 3 * WINDOW
MOST_ROWS = 5
# Prompt length, tokens to say, turns before the next row comes.
ROWS = st.lists(
    st.tuples(st.integers(1, 3 * WINDOW + 1), st.integers(1, MOST_TOKENS), st.integers(0, 9)), min_size=1, max_size=8
)


@functools.cache
def _solo(name: str, length: int, start: int) -> list[int]:
    return solo_tokens(random_model(name), prompt_of(length, start), MOST_TOKENS)


def _check(name: str, rows: list[tuple[int, int, int]]) -> None:
    model = random_model(name)
    driver = LoopDriver(model, facts_of(model, max_rows=MOST_ROWS))
    for index, (length, count, turns) in enumerate(rows):
        driver.submit(str(index), prompt_of(length, index % 4), max_tokens=count)
        driver.turn(turns)
    driver.run_until_idle()
    for index, (length, count, _) in enumerate(rows):
        assert driver.tokens(str(index)) == _solo(name, length, index % 4)[:count]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(rows=ROWS)
def test_any_schedule_leaves_each_row_its_solo_text(name: str, rows: list[tuple[int, int, int]]) -> None:
    """C2, C3: joins while wrapped, five rows at most, lengths over three wraps."""
    _check(name, rows)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=500, deadline=None)
@given(rows=ROWS)
def test_any_schedule_leaves_each_row_its_solo_text_for_long(name: str, rows: list[tuple[int, int, int]]) -> None:
    """The same over many more schedules."""
    _check(name, rows)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] if name != "gemma3_text" else []) for name in NAMES]
)
def test_400_tokens_past_the_wrap(name: str) -> None:
    """C3: two rows far beyond their windows, and a third that comes in between."""
    model = random_model(name)
    driver = LoopDriver(model, facts_of(model))
    expected = [solo_tokens(model, prompt_of(5 + 9 * start, start), 410 - 100 * start) for start in range(3)]
    driver.submit("0", prompt_of(5, 0), max_tokens=410)
    driver.submit("1", prompt_of(14, 1), max_tokens=310)
    driver.turn(150)
    driver.submit("2", prompt_of(23, 2), max_tokens=210)
    driver.run_until_idle()
    assert expected == [driver.tokens(str(index)) for index in range(3)]


class _Calls:
    """A model that notes what it is called with."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.seen: list[tuple[int, ...]] = []
        self.classes: set[tuple[type, ...]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: Any, cache: Any) -> Any:
        self.seen.append(tokens.shape)
        self.classes.add(tuple(type(each) for each in cache))
        return self._model(tokens, cache=cache)


@pytest.mark.parametrize("name", [*NAMES, "gemma4_text", "mamba2", "deepseek_v32"])
def test_a_lone_row_is_not_taxed(name: str) -> None:
    """B11: at cap 32 as at cap 1, and so again after its neighbours left: solo classes, same forwards, same tokens."""
    solo = tuple(type(cache) for cache in make_prompt_cache(random_model(name)))
    runs: list[tuple[list[int], list[tuple[int, ...]]]] = []
    for max_rows in (1, 32):
        model = _Calls(random_model(name))
        driver = LoopDriver(model, facts_of(model, max_rows=max_rows))  # pyright: ignore[reportArgumentType]
        driver.submit("row", prompt_of(12, 3), max_tokens=30)
        driver.run_until_idle()
        assert model.classes == {solo}
        runs.append((driver.tokens("row"), model.seen))
    assert runs[0] == runs[1]
    model = _Calls(random_model(name))
    driver = LoopDriver(model, facts_of(model))  # pyright: ignore[reportArgumentType]
    driver.submit("row", prompt_of(12, 3), max_tokens=30)
    driver.submit("neighbour", prompt_of(30, 4), max_tokens=6)
    driver.turn(12)
    model.classes.clear()
    driver.run_until_idle()
    assert model.classes == {solo}
    assert driver.tokens("row") == runs[0][0]
