"""When a process that says nothing is warned of, and when it is ended."""

import pytest

from engine.ctl.child import RestartPolicy
from engine.ctl.silence import LAST_WORDS_S, Silence
from engine.settings import Settings


def verdicts(silence: Silence, *waited_s: float) -> list[str | None]:
    """What is due after each of these waits."""
    found: list[str | None] = []
    for each in waited_s:
        silence.waited(each)
        found.append(silence.verdict())
    return found


def test_silence_is_warned_of_once_and_then_ended_once() -> None:
    """The end comes when the process has had the time to say where it stands."""
    assert LAST_WORDS_S == 2.0
    assert verdicts(Silence(3.0), 1, 1, 1, 1, 1, 1) == [None, None, "warn", None, "end", None]


def test_a_word_is_worth_the_whole_limit() -> None:
    """Also between the warning and the end."""
    silence = Silence(2.0)
    assert verdicts(silence, 1, 1, 1) == [None, "warn", None]
    silence.heard()
    assert verdicts(silence, 1, 1, 1, 1) == [None, "warn", None, "end"]


@pytest.mark.parametrize("asleep_s", [60.0, 1e6])
def test_a_listener_that_was_asleep_has_missed_little(asleep_s: float) -> None:
    """A machine that wakes after hours finds its engine alive."""
    assert verdicts(Silence(10.0), 1, asleep_s, 1, 1) == [None] * 4


def test_the_engines_own_watchdog_comes_first() -> None:
    """What it can end itself it ends with more to say."""
    assert Settings(model="m").step_limit_s + 20.0 < RestartPolicy().silence_limit_s
