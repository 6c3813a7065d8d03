"""Gemma 3 270M itself, whose window is 512 tokens: rows far past it, together, against mlx-lm's own generators."""

import functools

import mlx.nn as nn
import platformdirs
import pytest
from tokenizers import Tokenizer

from engine.cache.rotating import RotatingBatch
from engine.model.load import load_model
from engine.settings import Settings
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.parity.oracle import OracleRow, batch_tokens, solo_tokens

FOLDER = platformdirs.user_cache_path("convoy") / "models" / "gemma-3-270m"
WINDOW = 512
TOPICS = ["the sea", "old stone bridges", "how bread is made", "the moons of Jupiter", "a dragon on a hill"]

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no model in {FOLDER}: run `engine-ctl pull gemma3`"),
    pytest.mark.timeout(600),
]


@functools.cache
def _model() -> nn.Module:
    """Loaded as the engine loads it."""
    return load_model(Settings(model=str(FOLDER)), FOLDER).model


@functools.cache
def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def _prompt(topic: int, length: int) -> list[int]:
    """So many tokens about this topic, numbered lines that never repeat, begun by the BOS."""
    lines = [f"Fact {number} about {TOPICS[topic]} is known to {number * 7 + topic} people." for number in range(60)]
    ids = _tokenizer().encode("\n".join(lines)).ids
    assert len(ids) > length
    return ids[:length]


@functools.cache
def _alone(topic: int, length: int, count: int) -> list[int]:
    return solo_tokens(_model(), _prompt(topic, length), count)


# Length of the prompt, tokens to say, steps before it joins. Early leavers, late joiners, one of them past the wrap.
SCHEDULES = {
    2: [(WINDOW + 90, 18, 0), (30, 7, 0), (WINDOW + 40, 8, 4)],
    4: [(WINDOW + 90, 18, 0), (30, 7, 0), (WINDOW + 40, 8, 0), (WINDOW - 6, 14, 0), (70, 6, 9)],
}


@pytest.mark.parametrize("row_count", [pytest.param(2, marks=pytest.mark.soak), 4])
def test_rows_past_the_window_equal_the_oracle_and_their_solo_runs(row_count: int) -> None:
    """C3: rows that wrap before they join, that wrap while others come and go, and short ones beside them."""
    schedule = SCHEDULES[row_count]
    rows = [OracleRow(_prompt(topic, length), count, joins) for topic, (length, count, joins) in enumerate(schedule)]
    driver = LoopDriver(_model(), facts_of(_model()))
    waiting = list(enumerate(rows))
    wrapped: set[bool] = set()
    steps = 0
    while waiting or driver.live_ids():
        while waiting and waiting[0][1].joins_after <= steps:
            index, row = waiting.pop(0)
            driver.submit(str(index), row.prompt, max_tokens=row.max_tokens)
        driver.turn()
        wrapped |= {
            cache.ring.head > 0 and cache.ring.filled == WINDOW
            for group in driver.loop._batch.groups
            for cache in group.caches
            if isinstance(cache, RotatingBatch)
        }
        steps += 1
    assert True in wrapped, "no ring of the batch ever wrapped: the test would prove nothing"
    found = [driver.tokens(str(index)) for index in range(len(rows))]
    assert found == batch_tokens(_model(), rows)
    assert found == [_alone(topic, length, count) for topic, (length, count, _) in enumerate(schedule)]


def test_greedy_text_is_sensible() -> None:
    """The converted weights and tokenizer speak English, know the BOS, and go on as they should."""
    ids = _tokenizer().encode("Water boils at a temperature of").ids
    assert ids[0] == 2
    assert _tokenizer().decode(solo_tokens(_model(), ids, 5)).startswith(" 100 degrees")
