"""The supervisor over real processes that stand in for engine and frontends."""

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from engine.ctl.child import Child, ChildPlan, RestartPolicy
from engine.ctl.silence import LAST_WORDS_S
from engine.ctl.supervisor import EXIT_KILLED, Observer, Supervisor
from protocol.endpoint import RuntimeFolder
from protocol.errors import EXIT_BAD_SETTING
from protocol.status import EngineStatus

HERE = Path(__file__).parent
# Far above what a stand-in takes until its first word, on a busy machine.
SILENCE_LIMIT_S = 4.0
FAST = RestartPolicy(first_delay_s=0.01, longest_delay_s=0.02, grace_s=20.0)


@pytest.fixture
def folder(runtime_dir: Path) -> RuntimeFolder:
    """A runtime folder of our own."""
    return RuntimeFolder(runtime_dir)


@dataclass(slots=True, eq=False)
class Recorder:
    """Records what the supervisor tells, and reacts with a signal where a test wants one."""

    pids: list[list[int | None]] = field(default_factory=list)
    restarts: list[list[int]] = field(default_factory=list)
    serving: list[int] = field(default_factory=list)
    stops: int = 0
    stop_when_serving: int | None = None
    kill_when_serving: int | None = None
    stop_when_restarted: int | None = None
    signal_when_stopping: signal.Signals | None = None

    def observer(self) -> Observer:
        return Observer(self.on_change, self.on_serving, self.on_stopping)

    def on_change(self, children: list[Child]) -> None:
        self.pids.append([child.pid for child in children])
        self.restarts.append([child.restarts for child in children])
        index = self.stop_when_restarted
        if index is not None and children[index].restarts and children[index].pid:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_serving(self, index: int, status: EngineStatus) -> None:
        self.serving.append(index)
        if self.kill_when_serving is not None:
            pid = self.pids[-1][self.kill_when_serving]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        if len(self.serving) == self.stop_when_serving:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_stopping(self) -> None:
        self.stops += 1
        if self.signal_when_stopping is not None:
            os.kill(os.getpid(), self.signal_when_stopping)


def engine(folder: RuntimeFolder, *arguments: str) -> ChildPlan:
    """The stand-in engine."""
    command = [sys.executable, str(HERE / "stand_in_engine.py"), str(folder.path), *arguments]
    return ChildPlan("engine", lambda _: command)


def frontend(folder: RuntimeFolder) -> ChildPlan:
    """The stand-in frontend."""
    command = [sys.executable, str(HERE / "stand_in_frontend.py"), str(folder.path)]
    return ChildPlan("frontend", lambda _: command)


def script(text: str) -> ChildPlan:
    """A child that runs `text`; `restarts` is its count of restarts."""
    return ChildPlan("script", lambda restarts: [sys.executable, "-c", f"restarts = {restarts}\n{text}"])


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Whatever a test does, the supervisor leaves no child behind."""
    others = psutil.Process().children()
    yield
    assert [child for child in psutil.Process().children() if child not in others] == []


def test_stops_cleanly_on_sigterm_and_announces_each_frontend_once(folder: RuntimeFolder) -> None:
    """SIGTERM ends every child, and the exit status is 0."""
    recorder = Recorder(stop_when_serving=2)
    plans = [engine(folder), frontend(folder), frontend(folder)]
    assert Supervisor(folder, plans, recorder.observer(), FAST).run() == 0
    assert sorted(recorder.serving) == [0, 1]
    assert recorder.stops == 1
    assert recorder.pids[-1] == [None, None, None]
    assert recorder.restarts[-1] == [0, 0, 0]


@pytest.mark.parametrize("index", [0, 1])
def test_restarts_a_killed_child_and_leaves_the_other_alone(folder: RuntimeFolder, index: int) -> None:
    """A child killed by SIGKILL gets a fresh process; its neighbour keeps its pid."""
    recorder = Recorder(kill_when_serving=index, stop_when_restarted=index)
    assert Supervisor(folder, [engine(folder), frontend(folder)], recorder.observer(), FAST).run() == 0
    first = recorder.pids[0]
    restarted = next(pids for pids, counts in zip(recorder.pids, recorder.restarts, strict=True) if counts[index])
    assert restarted[index] not in (None, first[index])
    assert restarted[1 - index] == first[1 - index]


def test_an_engine_that_falls_silent_is_ended_and_started_again(
    folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lives and says nothing: one line says so, and a fresh one serves."""
    recorder = Recorder(stop_when_restarted=0)
    mute, well = engine(folder, "--falls-silent").command(0), engine(folder).command(0)
    plan = ChildPlan("engine", lambda restarts: well if restarts else mute)
    policy = dataclasses.replace(FAST, silence_limit_s=SILENCE_LIMIT_S)
    assert Supervisor(folder, [plan, frontend(folder)], recorder.observer(), policy).run() == 0
    assert recorder.restarts[-1] == [1, 0]
    lines = [line for line in capsys.readouterr().err.splitlines() if "engine (pid" in line]
    name = f"engine-ctl: engine (pid {recorder.pids[0][0]})"
    assert lines[:2] == [
        f"{name} has said nothing for {SILENCE_LIMIT_S:g} s: ending it; this is where it stands",
        f"{name} was ended by SIGKILL; restart 1 in 0.0 s",
    ]


def test_an_engine_that_is_held_by_a_signal_is_left_alone(folder: RuntimeFolder) -> None:
    """SIGSTOP is somebody's wish; it serves on after SIGCONT."""
    recorder = Recorder()
    seen: list[bool] = []

    def hold() -> None:
        while not (pids := recorder.pids and recorder.pids[-1]) or pids[0] is None:
            pass
        process = psutil.Process(pids[0])
        while process.status() != psutil.STATUS_STOPPED:
            pass
        # Alive beyond the limit, and then told to go on.
        with pytest.raises(psutil.TimeoutExpired):
            process.wait(SILENCE_LIMIT_S + LAST_WORDS_S + 2.0)
        seen.append(True)
        process.resume()
        os.kill(os.getpid(), signal.SIGTERM)

    holder = threading.Thread(target=hold)
    holder.start()
    plans = [engine(folder, "--stops"), frontend(folder)]
    policy = dataclasses.replace(FAST, silence_limit_s=SILENCE_LIMIT_S)
    assert Supervisor(folder, plans, recorder.observer(), policy).run() == 0
    holder.join()
    assert seen == [True]
    assert recorder.restarts[-1] == [0, 0]


def test_gives_up_on_a_crash_loop_with_the_last_words(
    folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five deaths without a useful moment end everything, say why, and exit 1."""
    recorder = Recorder()
    boom = script("import sys; sys.exit(f'boom {restarts}')")
    assert Supervisor(folder, [boom, frontend(folder)], recorder.observer(), FAST).run() == 1
    assert max(counts[0] for counts in recorder.restarts) == FAST.deaths_before_proof - 1
    last_line = [line for line in capsys.readouterr().err.splitlines() if line.startswith("engine-ctl:")][-1]
    assert "giving up" in last_line
    assert last_line.endswith("boom 4")


def test_proof_forgives_earlier_deaths(folder: RuntimeFolder) -> None:
    """An engine that becomes ready before its fifth death is no crash loop: it serves on its last try."""
    recorder = Recorder(stop_when_serving=1)
    real = engine(folder).command(0)
    flaky = ChildPlan(
        "engine", lambda restarts: real if restarts >= 4 else [sys.executable, "-c", "raise SystemExit(1)"]
    )
    assert Supervisor(folder, [flaky, frontend(folder)], recorder.observer(), FAST).run() == 0
    assert recorder.serving == [0]


def test_never_restarts_a_start_that_cannot_succeed(folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 78 of the engine ends everything with 78, and its one line is passed on once."""
    recorder = Recorder()
    hopeless = script(f"import sys; print('no such model', file=sys.stderr); sys.exit({EXIT_BAD_SETTING})")
    assert Supervisor(folder, [hopeless, frontend(folder)], recorder.observer(), FAST).run() == EXIT_BAD_SETTING
    assert len({pids[0] for pids in recorder.pids} - {None}) == 1
    assert capsys.readouterr().err.splitlines() == ["no such model"]


def test_ends_by_force_what_does_not_stop_in_time(folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """A child that ignores SIGTERM is killed after the grace time, and the exit status says so."""
    recorder = Recorder(stop_when_serving=1)
    hasty = RestartPolicy(grace_s=0.05)
    assert Supervisor(folder, [engine(folder, "--deaf"), frontend(folder)], recorder.observer(), hasty).run() == 1
    assert "ended now: engine" in capsys.readouterr().err


def test_a_second_signal_ends_at_once(folder: RuntimeFolder) -> None:
    """Ctrl-C during the stop does not wait for the grace time."""
    recorder = Recorder(stop_when_serving=1, signal_when_stopping=signal.SIGINT)
    plans = [engine(folder, "--deaf"), frontend(folder)]
    assert Supervisor(folder, plans, recorder.observer(), FAST).run() == EXIT_KILLED


def test_children_are_out_of_reach_of_the_terminals_ctrl_c(folder: RuntimeFolder) -> None:
    """Each child leads a process group of its own."""
    groups: list[bool] = []
    recorder = Recorder(stop_when_serving=1)

    def on_serving(index: int, status: EngineStatus) -> None:
        groups.extend(os.getpgid(pid) == pid for pid in recorder.pids[-1] if pid)
        recorder.on_serving(index, status)

    observer = Observer(recorder.on_change, on_serving, recorder.on_stopping)
    Supervisor(folder, [engine(folder), frontend(folder)], observer, FAST).run()
    assert groups == [True, True]


def test_signal_handlers_are_put_back(folder: RuntimeFolder) -> None:
    """After a run the process hears signals as before it."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    Supervisor(folder, [engine(folder), frontend(folder)], Recorder(stop_when_serving=1).observer(), FAST).run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)] == before
