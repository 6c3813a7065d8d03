"""The engine as a process: start, service, stop, and what it refuses; over real sockets with a tiny model."""

import gc
import json
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from bench.random_model import RandomModelSpec, build_random_model
from engine import main as engine_main
from engine.main import EXIT_CRASHED, Interrupted, StopSignals, say_cpu_facts
from engine.model.load import LoadedModel
from protocol.endpoint import RuntimeFolder
from protocol.errors import EXIT_BAD_SETTING, ErrorCode
from protocol.messages import Cancel, FetchTokenizer, Goodbye, Rejected, Step, SubmitId, TokenizerChunk
from tests.fakes.engine_process import PATIENCE_S, Watcher, command, ended, running, runtime_folder

LONG_TOKENS = 30_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_random_model(tmp_path_factory.mktemp("models") / "tiny", RandomModelSpec())


@pytest.fixture
def folder() -> Iterator[RuntimeFolder]:
    with runtime_folder() as made:
        yield made


def test_an_engine_serves_and_stops(model: Path, folder: RuntimeFolder) -> None:
    """Hello, tokenizer, a row; then SIGTERM: Goodbye, `stopping`, exit 0, no socket left, the lock free."""
    with running(model, folder, "--served-model-name", "nick", "--restarts", "2") as engine:
        client = engine.client
        welcome = client.greet()
        status = engine.watcher.until("ready")
        client.say(FetchTokenizer(epoch=client.epoch, name="tokenizer.json"))
        chunk = client.next()
        client.submit("one", max_tokens=5)
        tokens, finish = client.row("one")
        engine.process.send_signal(signal.SIGTERM)
        goodbye = client.next()
        engine.watcher.until("stopping")
        exit_status, text = engine.exit_status()
    assert welcome.facts.id == model.name
    assert welcome.facts.aliases[0] == "nick"
    assert status.model is not None
    assert (status.model.path, status.restarts, status.epoch) == (str(model), 2, welcome.epoch)
    assert isinstance(chunk, TokenizerChunk)
    assert chunk.data == (model / "tokenizer.json").read_bytes()
    assert (len(tokens), finish.reason) == (5, "length")
    assert isinstance(goodbye, Goodbye)
    assert (goodbye.reason, exit_status) == ("shutting_down", 0)
    assert sorted(path.name for path in folder.path.iterdir()) == ["engine.lock"]
    assert text.count("engine.settings") == 1
    assert text.splitlines()[-1].endswith("engine.stopped")


def test_an_engine_serves_at_the_debug_level(model: Path, folder: RuntimeFolder) -> None:
    """It starts, runs a row, stops, and has told the facts of its model."""
    with running(model, folder, "--log-level", "debug") as engine:
        engine.client.greet()
        engine.client.submit("one", max_tokens=3)
        tokens, _ = engine.client.row("one")
        engine.process.terminate()
        exit_status, text = engine.exit_status()
    assert (len(tokens), exit_status) == (3, 0)
    (line,) = [line for line in text.splitlines() if "model.ready" in line]
    assert f"id='{model.name}'" in line


def test_an_engine_serves_from_a_quantized_cache(folder: RuntimeFolder, tmp_path: Path) -> None:
    """--kv-bits reaches the caches: a row runs on them, and clients are told that rows may share a batch."""
    model = build_random_model(tmp_path / "tiny", RandomModelSpec(hidden_size=128))
    with running(model, folder, "--kv-bits", "8", "--kv-group-size", "32") as engine:
        welcome = engine.client.greet()
        engine.client.submit("one", max_tokens=6)
        tokens, finish = engine.client.row("one")
    assert (len(tokens), finish.reason) == (6, "length")
    assert welcome.facts.batching.mode == "batch"
    assert "quantized" in welcome.facts.batching.reason


@pytest.mark.parametrize(
    ("size", "said", "is_warned"),
    [
        ("1000", "--prompt-cache-bytes 1000 holds no prompt", True),
        ("0", "--prompt-cache-bytes is 0", False),
        ("1000000000", "", False),
    ],
)
def test_a_prompt_cache_that_holds_nothing_is_told(
    model: Path, folder: RuntimeFolder, size: str, said: str, is_warned: bool
) -> None:
    """At start, unless it was asked for, and in every status: which flag, and what it would take."""
    with running(model, folder, "--prompt-cache-bytes", size) as engine:
        reason = engine.watcher.until("ready").prefix.reason
        engine.process.terminate()
        _, text = engine.exit_status()
    assert reason.startswith(said)
    assert bool(reason) == bool(said)
    assert [reason in line for line in text.splitlines() if "prefixes.off" in line] == [True] * is_warned


def test_a_second_engine_is_refused_and_the_first_lives(model: Path, folder: RuntimeFolder) -> None:
    """One line with the holder's pid; the first one's sockets are not touched."""
    with running(model, folder) as engine:
        exit_status, lines = ended(command(model, folder))
        engine.client.greet()
        engine.client.submit("one", max_tokens=3)
        tokens, _ = engine.client.row("one")
    assert exit_status == EXIT_BAD_SETTING
    assert lines[-1].startswith("engine: runtime folder")
    assert f"pid {engine.process.pid}" in lines[-1]
    assert len(tokens) == 3


def test_an_engine_says_what_memory_holds(model: Path, folder: RuntimeFolder) -> None:
    """E2: a budget for less than the context is told to clients, in the status and at start; a longer prompt is
    refused with the figures, and the next one runs."""
    with running(model, folder, "--kv-cache-memory-bytes", "8000000") as engine:
        client = engine.client
        facts = client.greet().facts
        status = engine.watcher.until("ready")
        client.submit("big", max_tokens=3, prompt=[5] * facts.context_length)
        refused = client.next()
        client.submit("next", max_tokens=3)
        tokens, _ = client.row("next")
        engine.process.terminate()
        _, text = engine.exit_status()
    assert 512 <= facts.context_length < facts.model_context_length
    assert facts.kv_budget_bytes == 8_000_000
    assert status.model is not None
    told = (status.model.context_length, status.model.model_context_length, status.memory.budget_bytes)
    assert told == (facts.context_length, facts.model_context_length, 8_000_000)
    assert isinstance(refused, Rejected)
    assert refused.code == ErrorCode.CONTEXT_LENGTH_EXCEEDED
    for part in (f"{facts.context_length} tokens", str(facts.model_context_length), "8000000 bytes"):
        assert part in refused.message
    assert len(tokens) == 3
    (line,) = [line for line in text.splitlines() if "memory.context" in line]
    assert f"row_tokens={facts.context_length}" in line


def test_a_budget_for_nothing_is_refused(model: Path, folder: RuntimeFolder) -> None:
    """One line with the figures, what to change, and the exit status of a bad setting."""
    exit_status, lines = ended(command(model, folder, "--kv-cache-memory-bytes", "10000"))
    assert exit_status == EXIT_BAD_SETTING
    assert lines[-1].startswith("engine: 10000 bytes for KV caches: one request of 512 tokens needs ")
    assert "raise --kv-cache-memory-bytes" in lines[-1]


def test_a_killed_engine_leaves_nothing_in_the_way(model: Path, folder: RuntimeFolder) -> None:
    """After kill -9 the next engine starts in the same folder, with another epoch."""
    with running(model, folder) as first:
        first.process.kill()
        first.process.wait(timeout=PATIENCE_S)
    with running(model, folder) as second:
        assert second.client.epoch != first.client.epoch
        assert second.client.greet().epoch == second.client.epoch


def test_a_stop_lets_rows_finish_and_takes_no_new_ones(model: Path, folder: RuntimeFolder) -> None:
    """SIGTERM: phase `draining`, a new Submit is refused, the running row ends as its client wants, exit 0."""
    with running(model, folder) as engine:
        client = engine.client
        client.greet()
        client.submit("long", max_tokens=LONG_TOKENS)
        assert isinstance(client.next(), Step)
        engine.process.send_signal(signal.SIGTERM)
        engine.watcher.until("draining")
        client.submit("late", max_tokens=1)
        while isinstance(refused := client.next(), Step):
            pass
        client.say(Cancel(epoch=client.epoch, id=SubmitId("long"), reason="stop"))
        _, finish = client.row("long")
        exit_status, _ = engine.exit_status()
    assert isinstance(refused, Rejected)
    assert (refused.id, refused.code) == ("late", ErrorCode.SHUTTING_DOWN)
    assert (finish.reason, exit_status) == ("stop", 0)


def test_the_grace_time_ends_a_long_row(model: Path, folder: RuntimeFolder) -> None:
    """What has not finished by then ends with an error, told before the Goodbye."""
    with running(model, folder, "--grace-s", "0.2") as engine:
        client = engine.client
        client.greet()
        client.submit("long", max_tokens=LONG_TOKENS)
        assert isinstance(client.next(), Step)
        engine.process.send_signal(signal.SIGTERM)
        _, finish = client.row("long")
        last = client.next()
        exit_status, _ = engine.exit_status()
    assert (finish.reason, finish.code) == ("error", ErrorCode.SHUTTING_DOWN)
    assert isinstance(last, Goodbye)
    assert exit_status == 0


def test_a_second_signal_does_not_wait(model: Path, folder: RuntimeFolder) -> None:
    """The grace time is cut short, sockets and lock are given back all the same."""
    with running(model, folder, "--grace-s", "1000") as engine:
        engine.client.greet()
        engine.client.submit("long", max_tokens=LONG_TOKENS)
        assert isinstance(engine.client.next(), Step)
        engine.process.send_signal(signal.SIGINT)
        engine.watcher.until("draining")
        engine.process.send_signal(signal.SIGINT)
        exit_status, text = engine.exit_status()
    assert exit_status == 0
    assert "engine.interrupted" in text
    assert "Traceback" not in text
    assert sorted(path.name for path in folder.path.iterdir()) == ["engine.lock"]


def test_an_orphan_stops_if_wanted(model: Path, folder: RuntimeFolder) -> None:
    """--exit-with-parent: the supervisor is killed, the engine drains and goes."""
    parent_script = (
        "import subprocess, sys\n"
        f"subprocess.Popen({[*command(model, folder), '--exit-with-parent']!r}, stderr=subprocess.DEVNULL)\n"
        "sys.stdin.read()\n"
    )
    with zmq.Context() as context:
        watcher = Watcher(context, folder)
        parent = subprocess.Popen([sys.executable, "-c", parent_script], stdin=subprocess.PIPE)
        try:
            watcher.until("ready")
        finally:
            parent.kill()
            parent.communicate()
        watcher.until("stopping")
        watcher.close()


def corrupt(model: Path, target: Path) -> Path:
    shutil.copytree(model, target)
    (target / "model.safetensors").write_bytes((target / "model.safetensors").read_bytes()[:-500])
    return target


def test_a_corrupt_model_is_one_line(model: Path, folder: RuntimeFolder, tmp_path: Path) -> None:
    """Exit 78, the reason, and no socket left."""
    exit_status, lines = ended(command(corrupt(model, tmp_path / "broken"), folder))
    assert exit_status == EXIT_BAD_SETTING
    assert lines[-1].startswith(f"engine: model {tmp_path / 'broken'} cannot be loaded: ")
    assert sorted(path.name for path in folder.path.iterdir()) == ["engine.lock"]


# --- inside one process -----------------------------------------------------------------------


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """main() without its hold on this process's logging and signals."""
    monkeypatch.setattr(engine_main, "setup_logging", lambda _level: None)
    monkeypatch.setattr(StopSignals, "install", lambda _self: None)


@pytest.mark.parametrize("arguments", [[], ["--model", "m", "--max-rows", "0"], ["--model", "m", "--what"]])
def test_a_bad_setting_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`engine: …` once, exit 78, before anything is opened."""
    assert engine_main.main(arguments) == EXIT_BAD_SETTING
    text = capsys.readouterr().err
    assert text.startswith("engine: ")
    assert text.count("engine: ") == 1
    assert text.count("\n") == 1


@pytest.mark.usefixtures("quiet")
def test_a_model_that_cannot_be_served_is_one_line(
    model: Path, folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing, or with a context over its own."""
    where = ["--runtime-dir", str(folder.path)]
    assert engine_main.main(["--model", "/nowhere/m", *where]) == EXIT_BAD_SETTING
    assert capsys.readouterr().err == "engine: model folder /nowhere/m does not exist\n"
    assert engine_main.main(["--model", str(model), "--context-length", "100000", *where]) == EXIT_BAD_SETTING
    assert capsys.readouterr().err.startswith("engine: --context-length 100000 is over the model's own 32768")
    assert sorted(path.name for path in folder.path.iterdir()) == ["engine.lock"]


@pytest.mark.usefixtures("quiet")
def test_a_bad_scheme_is_refused_before_weights_are_loaded(
    model: Path, folder: RuntimeFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """C6: one line with the layer's number, though the weights are broken too."""
    broken = corrupt(model, tmp_path / "broken")
    (broken / "kv_config.json").write_text('[{"layer_idx": 70, "bits": 4}]', encoding="utf-8")
    arguments = ["--model", str(broken), "--runtime-dir", str(folder.path), "--kv-scheme", "config"]
    assert engine_main.main(arguments) == EXIT_BAD_SETTING
    assert capsys.readouterr().err.startswith("engine: kv_config.json: layer 70 is missing")


@pytest.mark.usefixtures("quiet")
def test_a_scheme_that_the_model_cannot_have_is_one_line(
    model: Path, folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """C7: heads narrower than a group, found on the loaded model."""
    arguments = ["--model", str(model), "--runtime-dir", str(folder.path), "--kv-bits", "8"]
    assert engine_main.main(arguments) == EXIT_BAD_SETTING
    assert capsys.readouterr().err.startswith("engine: --kv-bits: llama does not run on a quantized KV cache")


@pytest.mark.usefixtures("quiet")
def test_a_folder_that_is_open_to_others_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its mode is named, and nothing is put into it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cv") as path:
        Path(path).chmod(0o755)
        assert engine_main.main(["--model", "m", "--runtime-dir", path]) == EXIT_BAD_SETTING
        assert list(Path(path).iterdir()) == []
    assert "mode 0755" in capsys.readouterr().err


@pytest.mark.usefixtures("quiet")
def test_a_crash_is_logged_and_exits_1(
    model: Path, folder: RuntimeFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last word has the traceback; a supervisor tries again."""

    def crash(_self: object) -> None:
        raise ZeroDivisionError("for the test")

    monkeypatch.setattr(engine_main.EngineLoop, "run", crash)
    assert engine_main.main(["--model", str(model), "--runtime-dir", str(folder.path)]) == EXIT_CRASHED
    last = caplog.records[-1]
    assert (last.levelname, last.message) == ("ERROR", "engine.crashed")
    assert last.exc_info is not None
    assert sorted(path.name for path in folder.path.iterdir()) == ["engine.lock"]


@pytest.mark.usefixtures("quiet")
def test_what_is_loaded_is_no_work_for_the_garbage_collector(
    model: Path, folder: RuntimeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the loop begins to serve, all modules and the tokenizer are out of the collector's reach."""
    left: list[int] = []
    monkeypatch.setattr(engine_main.EngineLoop, "run", lambda _self: left.append(len(gc.get_objects())))
    before = len(gc.get_objects())
    try:
        assert engine_main.main(["--model", str(model), "--runtime-dir", str(folder.path)]) == 0
    finally:
        gc.unfreeze()
    assert left[0] < before / 100


def test_the_first_signal_drains_and_the_second_interrupts() -> None:
    """Before the loop runs there is nothing to drain: the first one interrupts."""
    loading, serving = StopSignals(), StopSignals()
    serving.can_drain = True
    with pytest.raises(Interrupted):
        loading._heard(signal.SIGTERM, None)
    serving._heard(signal.SIGTERM, None)
    assert (loading.stop.is_set(), serving.stop.is_set()) == (True, True)
    with pytest.raises(Interrupted):
        serving._heard(signal.SIGINT, None)


def loaded_on(device: str) -> LoadedModel:
    return LoadedModel(model=Any, config={}, path=Path("m"), dtype="float32", device=device, weights_bytes=0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("platform", "device", "path", "expected"),
    [
        ("linux", "cpu", "/lib/libopenblas.so.0", [("INFO", "engine.cpu")]),
        ("linux", "cpu", None, [("WARNING", "engine.no_openblas")]),
        ("linux", "cuda", None, []),
        ("darwin", "cpu", None, []),
        ("darwin", "metal", None, []),
    ],
)
def test_one_line_says_what_makes_the_cpu_fast_or_slow(
    platform: str,
    device: str,
    path: str | None,
    expected: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On Linux CPU only; without OpenBLAS it names the package and the cost."""
    monkeypatch.setattr(sys, "platform", platform)
    with caplog.at_level(logging.INFO):
        say_cpu_facts(loaded_on(device), path)
    assert [(record.levelname, record.message) for record in caplog.records] == expected
    fields = json.dumps([vars(record) for record in caplog.records], default=str)
    assert ("libopenblas0-pthread" in fields) is (expected == [("WARNING", "engine.no_openblas")])
