"""Many long prompts, in batches: what is kept stays under its ceiling, and so does the process."""

import gc
import statistics
import time
from collections.abc import Callable

import psutil
import pytest

from engine.prefix.store import StoreLimits
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of
from tests.parity.architectures import random_model

CEILING_BYTES = 64 << 20
PROMPTS, TOKENS = 200, 2_000
MOST_MB_A_MINUTE = 0.5


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_two_hundred_long_prompts_take_no_more_memory(record_property: Callable[[str, object], None]) -> None:
    """E5: reported bytes stay under the ceiling; the resident size of the second half does not rise."""
    model = random_model("llama")
    driver = LoopDriver(model, facts_of(model), chunk_tokens=256, prefixes=StoreLimits(CEILING_BYTES))
    process = psutil.Process()
    minutes: list[float] = []
    resident_mb: list[float] = []
    for index in range(PROMPTS):
        driver.submit(str(index), prompt_of(TOKENS, index), max_tokens=4)
        if index % 4 == 3:
            driver.run_until_idle(10_000 * (index + 1))
            status = driver.prefixes.status()
            assert status.size_bytes + driver.loop._live_bytes <= CEILING_BYTES
            driver.mailbox.sent.clear()
        if index % 4 == 3 and index >= PROMPTS // 2:
            gc.collect()
            minutes.append(time.monotonic() / 60)
            resident_mb.append(process.memory_info().rss / 1e6)
    assert driver.prefixes.status().evictions > PROMPTS // 2
    slope = statistics.linear_regression(minutes, resident_mb).slope
    record_property("resident_mb", [resident_mb[0], resident_mb[-1]])
    record_property("slope_mb_a_minute", slope)
    assert slope < MOST_MB_A_MINUTE
