"""The status as it is joined, encoded and shown."""

import io
import os
import threading
from pathlib import Path

import msgspec
import pytest
import zmq
from rich.console import Console

from engine.ctl.failure import CommandError
from engine.ctl.state import FrontendState, SupervisorState, write_state
from engine.ctl.status_view import FrontendView, join_views, read_status, show_status
from protocol.codec import encode
from protocol.endpoint import RuntimeFolder, bind_status
from protocol.messages import Batching, ParserNames
from protocol.status import (
    Counters,
    EngineStatus,
    FrontendStatus,
    MemoryStatus,
    ModelStatus,
    PrefixStatus,
    RowCounts,
    StepStatus,
    TokenStatus,
)

STATE = SupervisorState(
    pid=os.getpid(),
    model_id="tiny",
    model_path="/models/tiny",
    engine_pid=10,
    engine_restarts=2,
    frontends=(
        FrontendState(port=8080, url="http://127.0.0.1:8080", pid=11, restarts=1),
        FrontendState(port=8081, url="http://127.0.0.1:8081"),
    ),
)
STATUS = EngineStatus(
    epoch="e",
    protocol_version=1,
    pid=10,
    phase="ready",
    uptime_s=3_725.0,
    restarts=2,
    model=ModelStatus(id="tiny", path="/models/tiny", dtype="float32", device="cpu", context_length=512, max_rows=8),
    batching=Batching(mode="batch", reason="every layer keeps a plain KV cache"),
    rows=RowCounts(waiting=3, prefilling=1, decoding=8),
    step=StepStatus(count=42, age_ms=7.0, last_ms=6.0),
    tokens=TokenStatus(prompt_total=100, generated_total=336, generated_per_s=81.5),
    memory=MemoryStatus(weights_bytes=2_500_000_000, kv_bytes=12_300_000),
    prefix=PrefixStatus(
        entries=5,
        size_bytes=61_500_000,
        limit_bytes=3_000_000_000,
        hits=9,
        misses=3,
        queried_tokens=200,
        hit_tokens=170,
    ),
    frontends=(
        FrontendStatus(
            name="frontend",
            pid=11,
            listens=("http://127.0.0.1:8080",),
            rows=12,
            silent_s=0.4,
            parsers=ParserNames(tools="hermes"),
        ),
        FrontendStatus(name="frontend", pid=98, listens=("http://127.0.0.1:8081",), rows=1, silent_s=9.0),
        FrontendStatus(name="foreign", pid=99, listens=("http://127.0.0.1:9999",), rows=0, silent_s=0.1),
    ),
)


@pytest.fixture
def folder(runtime_dir: Path) -> RuntimeFolder:
    """A runtime folder of our own."""
    return RuntimeFolder(runtime_dir)


def test_json_has_what_scripts_ask_for() -> None:
    """The names of the issue, at their places."""
    shown = msgspec.json.decode(msgspec.json.encode(join_views(STATUS, STATE)))
    assert (shown["phase"], shown["pid"], shown["uptime_s"], shown["restarts"]) == ("ready", 10, 3_725.0, 2)
    assert (shown["model"]["id"], shown["model"]["path"]) == ("tiny", "/models/tiny")
    assert shown["batching"] == {"mode": "batch", "reason": "every layer keeps a plain KV cache"}
    assert shown["rows"] == {"waiting": 3, "prefilling": 1, "decoding": 8} | {
        "oldest_waiting_ms": 0.0,
        "waiting_for_memory": 0,
    }
    assert (shown["tokens_per_s"], shown["kv_bytes"], shown["step"]["age_ms"]) == (81.5, 12_300_000, 7.0)
    assert [frontend["port"] for frontend in shown["frontends"]] == [8080, 8081, 9999]


def test_frontends_are_joined_by_pid() -> None:
    """Supervised and connected, supervised only (its predecessor's lease is no frontend), connected only."""
    view = join_views(STATUS, STATE)
    url = "http://127.0.0.1"
    assert view.frontends == (
        FrontendView(
            port=8080,
            url=f"{url}:8080",
            pid=11,
            restarts=1,
            rows=12,
            silent_s=0.4,
            parsers=ParserNames(tools="hermes"),
        ),
        FrontendView(port=8081, url=f"{url}:8081", pid=None, restarts=0),
        FrontendView(port=9999, url=f"{url}:9999", pid=99, restarts=None, silent_s=0.1),
    )


def test_an_engine_without_supervisor_is_shown_alone() -> None:
    """`python -m engine` by hand has no state file."""
    view = join_views(STATUS, None)
    assert (view.phase, view.supervisor_pid, view.restarts) == ("ready", None, 2)


def test_a_supervisor_without_engine_says_starting() -> None:
    """Between a crash and the restart there is still something to see."""
    view = join_views(None, STATE)
    assert (view.phase, view.pid, view.supervisor_pid, view.restarts) == ("starting", None, os.getpid(), 2)
    assert view.model == ModelStatus(id="tiny", path="/models/tiny")


def test_people_see_what_memory_does() -> None:
    """What is budgeted of how much, who waits for it, and how often rows gave way; nothing of it where nobody does."""
    memory = MemoryStatus(weights_bytes=1_000_000, kv_bytes=2_000_000, ledger_bytes=3_000_000, budget_bytes=4_000_000)
    tight = msgspec.structs.replace(
        STATUS,
        memory=memory,
        rows=RowCounts(waiting=3, waiting_for_memory=2),
        counters=Counters(preemptions=7),
    )
    console = Console(file=io.StringIO(), width=160)
    show_status(join_views(tight, STATE), console)
    assert isinstance(console.file, io.StringIO)
    words = "2.0 MB KV (budgeted 3.0 MB of 4.0 MB), 1.0 MB weights; 2 wait for memory; preemptions: 7"
    assert words in console.file.getvalue()


def test_people_see_every_number() -> None:
    """Phase, model, pid, uptime, rows, rate, KV bytes, step age, restarts, each frontend with its port and parsers."""
    console = Console(file=io.StringIO(), width=120)
    show_status(join_views(STATUS, STATE), console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for expected in (
        "ready",
        "tiny  float32 cpu",
        "pid 10, up 1 h 2 min, restarts 2",
        "batch: every layer keeps a plain KV cache",
        "3 waiting, 1 prefilling, 8 decoding",
        "81.5 per second, 336 since start",
        "12.3 MB KV, 2.50 GB weights",
        "42 done, running for 7 ms",
        "5 kept, 61.5 MB (at most 3.00 GB with the rows' KV); 9 of 12 prompts began with one, 85% of their tokens",
        "http://127.0.0.1:8080  11   1         12    0.4 s ago      hermes       none",
        "http://127.0.0.1:8081  -    0         0     not connected  -            -",
    ):
        assert expected in shown


@pytest.mark.parametrize("width", [60, 80])
def test_a_narrow_terminal_shows_whole_addresses(width: int) -> None:
    """Cut ones would all look alike; 80 is also the width of a pipe."""
    console = Console(file=io.StringIO(), width=width)
    show_status(join_views(STATUS, STATE), console)
    assert isinstance(console.file, io.StringIO)
    words = console.file.getvalue().split()
    urls = [frontend.url for frontend in join_views(STATUS, STATE).frontends]
    assert urls == [word for word in words if "://" in word]


def test_a_cache_that_is_off_is_said_to_be() -> None:
    """By a flag, or for want of room; or an engine that has not told."""
    why = "--prompt-cache-bytes 1 holds no prompt"
    for prefix, expected in (
        (PrefixStatus(), "none are kept\n"),
        (PrefixStatus(reason=why), f"none are kept: {why}\n"),
        (PrefixStatus(limit_bytes=1_000, reason=why), f"none are kept: {why}\n"),
        (PrefixStatus(limit_bytes=1_000, reason=why, entries=1), "1 kept, "),
    ):
        console = Console(file=io.StringIO(), width=120)
        show_status(join_views(msgspec.structs.replace(STATUS, prefix=prefix), STATE), console)
        assert isinstance(console.file, io.StringIO)
        shown = [" ".join(line.split()) + "\n" for line in console.file.getvalue().splitlines()]
        assert [line for line in shown if line.startswith(f"prefixes {expected}")] != []


def test_nothing_running_is_none(folder: RuntimeFolder) -> None:
    """No engine is heard and no supervisor lives."""
    assert read_status(folder, wait_ms=1) is None


def test_a_living_supervisor_counts_without_an_engine(folder: RuntimeFolder) -> None:
    """The state file alone is a view."""
    write_state(folder, STATE)
    view = read_status(folder, wait_ms=1)
    assert view is not None
    assert view.phase == "starting"


@pytest.mark.parametrize("frame", [encode(STATUS), b"\xc1"])
def test_the_engine_is_heard_over_its_socket(folder: RuntimeFolder, frame: bytes) -> None:
    """One pushed frame is enough; one of another version is said to be unreadable."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = bind_status(context, folder)
    is_heard = threading.Event()

    def publish() -> None:
        while not is_heard.wait(0.01):
            socket.send(frame)

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        if frame == b"\xc1":
            with pytest.raises(CommandError, match="cannot be read"):
                read_status(folder)
        else:
            view = read_status(folder)
            assert view is not None
            assert view.rows == STATUS.rows
    finally:
        is_heard.set()
        publisher.join()
        socket.close()
        context.term()


def test_a_folder_without_state_file_is_no_supervisor(tmp_path: Path) -> None:
    """An engine by hand leaves only its sockets."""
    assert read_status(RuntimeFolder(tmp_path), wait_ms=1) is None
