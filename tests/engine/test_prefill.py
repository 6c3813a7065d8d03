"""What a row's prompt may be, down to its least."""

import pytest

from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


@pytest.mark.parametrize("lengths", [(5, 1), (1, 5), (1, 1), (5, 2, 1)])
def test_prompts_of_one_token_join_like_any_other(driver: LoopDriver, lengths: tuple[int, ...]) -> None:
    """A row with nothing to prefill has empty caches, and costs neither itself nor the rows that it joins."""
    for index, length in enumerate(lengths):
        driver.submit(str(index), prompt_of(length, index), max_tokens=6)
    driver.run_until_idle()
    expected = [solo_tokens(tiny_model("llama"), prompt_of(length, index), 6) for index, length in enumerate(lengths)]
    assert [driver.tokens(str(index)) for index in range(len(lengths))] == expected


def test_a_prompt_of_one_token_joins_running_rows(driver: LoopDriver) -> None:
    """Beside rows that decode already, too."""
    driver.submit("running", prompt_of(9), max_tokens=12)
    driver.turn(4)
    driver.submit("joiner", prompt_of(1, 2), max_tokens=6)
    driver.run_until_idle()
    assert driver.tokens("running") == solo_tokens(tiny_model("llama"), prompt_of(9), 12)
    assert driver.tokens("joiner") == solo_tokens(tiny_model("llama"), prompt_of(1, 2), 6)
