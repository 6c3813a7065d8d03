"""One supervised process: back-off, last words, ends."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import pytest

from engine.ctl.child import Child, ChildPlan, Death, RestartPolicy
from protocol.errors import EXIT_BAD_SETTING


@dataclass(slots=True, eq=False)
class Clock:
    """Seconds that pass only when told."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def child_of(text: str, clock: Callable[[], float], policy: RestartPolicy | None = None) -> Child:
    """A child that runs the Python program `text`."""
    plan = ChildPlan("script", lambda _: [sys.executable, "-c", text])
    return Child(plan, policy or RestartPolicy(), clock)


def run_to_death(child: Child) -> Death:
    """Starts the child and waits for its end."""
    child.start()
    assert child._process is not None
    child._process.wait()
    death = child.find_death()
    assert death is not None
    return death


def test_delays_double_up_to_the_longest() -> None:
    """Back-off: 0.2 s doubling to 10 s."""
    clock = Clock()
    child = child_of("raise SystemExit(1)", clock)
    delays = []
    for _ in range(8):
        run_to_death(child)
        assert child.due_s is not None
        delays.append(round(child.due_s - clock.now_s, 6))
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert child.restarts == 7


def test_a_minute_of_health_resets_the_delay() -> None:
    """A child that lived for 60 s starts again after the first delay."""
    clock = Clock()
    child = child_of("raise SystemExit(1)", clock)
    run_to_death(child)
    run_to_death(child)
    child.start()
    assert child._process is not None
    child._process.wait()
    clock.now_s += 60.0
    child.find_death()
    assert child.due_s == pytest.approx(clock.now_s + 0.2)


def test_proof_resets_the_count_of_deaths_but_not_the_delay() -> None:
    """Becoming useful is no crash loop; dying right after is still slowed down."""
    clock = Clock()
    child = child_of("raise SystemExit(1)", clock)
    run_to_death(child)
    child.prove()
    assert child.deaths_in_a_row == 0
    run_to_death(child)
    assert child.due_s == pytest.approx(clock.now_s + 0.4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Death("ended with status 0", is_clean=True, is_hopeless=False)),
        ("raise SystemExit(7)", Death("ended with status 7", is_clean=False, is_hopeless=False)),
        (f"raise SystemExit({EXIT_BAD_SETTING})", Death("ended with status 78", is_clean=False, is_hopeless=True)),
        (
            "import os; os.kill(os.getpid(), 9)",
            Death("was ended by SIGKILL", is_clean=False, is_hopeless=False),
        ),
        (
            "import os; os.kill(os.getpid(), 15)",
            Death("was ended by SIGTERM", is_clean=True, is_hopeless=False),
        ),
    ],
)
def test_death_says_how(text: str, expected: Death) -> None:
    """Status, signal, and whether another start could help."""
    assert run_to_death(child_of(text, Clock())) == expected


def test_relays_both_outputs_and_keeps_the_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Every line reaches stderr, also one without an end; blank lines are no last words."""
    text = "import sys; print('out', flush=True); sys.stderr.write('first\\n\\nlast words'); sys.stderr.flush()"
    child = child_of(text, Clock())
    run_to_death(child)
    assert capsys.readouterr().err == "out\nfirst\n\nlast words\n"
    assert child.last_words == "last words"


def test_an_endless_line_is_passed_on_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    """A child cannot make its supervisor hoard bytes."""
    child = child_of("print('x' * 300_000)", Clock())
    child.start()
    process = child._process
    assert process is not None
    while process.poll() is None:
        child.relay_output()
        assert len(child._unfinished) <= 65_536
    child.find_death()
    assert capsys.readouterr().err.replace("\n", "") == "x" * 300_000


def test_terminate_plans_no_further_start() -> None:
    """A child that waits for its restart is simply not started again."""
    child = child_of("raise SystemExit(1)", Clock())
    run_to_death(child)
    child.terminate()
    assert child.due_s is None
    assert child.pid is None


def test_knows_whether_a_signal_holds_its_process() -> None:
    """SIGSTOP and SIGCONT are told to the parent only; the end is still found, with its status."""
    child = child_of("import signal; signal.pause()", Clock())
    child.start()
    assert child.pid is not None
    process = psutil.Process(child.pid)
    try:
        process.suspend()
        seen = [_until(child, is_stopped=True)]
        process.resume()
        seen.append(_until(child, is_stopped=False))
    finally:
        process.kill()
    assert seen == [True, True]
    while (death := child.find_death()) is None:
        pass
    assert death.cause == "was ended by SIGKILL"


def _until(child: Child, *, is_stopped: bool) -> bool:
    deadline_s = time.monotonic() + 20.0
    while child.is_stopped != is_stopped and time.monotonic() < deadline_s:
        assert child.find_death() is None
    return child.is_stopped == is_stopped
