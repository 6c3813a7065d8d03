"""What `serve` does before and around the supervisor."""

import os
import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from engine.ctl.child import Child, ChildPlan, RestartPolicy
from engine.ctl.failure import CommandError
from engine.ctl.listeners import open_listeners
from engine.ctl.pull import ModelSource
from engine.ctl.serve import _key_file, _plans, _Terminal, _warn_of_idle_guesses, _warn_of_strangers, serve
from engine.ctl.settings import ServeSettings
from engine.ctl.state import lock_supervisor, read_state
from engine.settings import Settings as EngineSettings
from frontend.settings import Settings as FrontendSettings
from protocol.endpoint import RuntimeFolder
from protocol.messages import GenerationDefaults
from protocol.settings import parse_settings
from protocol.status import EngineStatus, ModelStatus

SOURCE = ModelSource(Path("/models/tiny"), "tiny")


@pytest.fixture
def folder(runtime_dir: Path) -> RuntimeFolder:
    """A runtime folder of our own."""
    return RuntimeFolder(runtime_dir)


def test_children_understand_every_option_they_are_given(folder: RuntimeFolder) -> None:
    """The engine's and the frontend's own parsers read the supervisor's command lines."""
    listeners = open_listeners("127.0.0.1", (0, 0))
    settings = ServeSettings(
        max_rows=4, dtype="float16", runtime_dir=str(folder.path), served_model_name=("a", "*"), log_level="debug"
    )
    settings = msgspec.structs.replace(settings, kv_bits=4, kv_group_size=32, quantized_kv_start=0)
    settings = msgspec.structs.replace(settings, max_body_bytes=5_000, allowed_origins=("http://a:1", "*"))
    settings = msgspec.structs.replace(settings, prefill_step_size=64, prompt_concurrency=2, trust_remote_code=True)
    settings = msgspec.structs.replace(settings, chat_template="-{{ x }}", chat_template_args='{"a": 1}')
    settings = msgspec.structs.replace(settings, use_default_chat_template=True)
    settings = msgspec.structs.replace(settings, tool_parser="hermes", reasoning_parser="none")
    settings = msgspec.structs.replace(
        settings, prompt_cache_size=0, prompt_cache_bytes="1.5GB", kv_cache_memory_bytes="4 gb"
    )
    settings = msgspec.structs.replace(settings, temp=0.5, top_p=0.9, top_k=40, min_p=0.05, max_tokens=512)
    engine_plan, *frontend_plans = _plans(settings, SOURCE, listeners, folder.path / "keys")
    command = engine_plan.command(3)
    assert command[1:4] == ["-P", "-m", "engine"]
    engine = parse_settings(EngineSettings, command[4:], "engine")
    assert (engine.model, engine.model_id, engine.max_rows, engine.dtype) == ("/models/tiny", "tiny", 4, "float16")
    assert (engine.restarts, engine.exit_with_parent, engine.log_level) == (3, True, "debug")
    assert engine.served_model_name == ("a", "*")
    assert (engine.kv_bits, engine.kv_group_size, engine.quantized_kv_start, engine.kv_scheme) == (4, 32, 0, None)
    assert (engine.prompt_cache_size, engine.prompt_cache_bytes) == (0, 1_500_000_000)
    assert engine.kv_cache_memory_bytes == 4_000_000_000
    assert (engine.prefill_step_size, engine.prompt_concurrency, engine.trust_remote_code) == (64, 2, True)
    for listener, plan in zip(listeners, frontend_plans, strict=True):
        frontend = parse_settings(FrontendSettings, plan.command(0)[4:], "frontend")
        assert (frontend.fd, frontend.runtime_dir) == (listener.socket.fileno(), str(folder.path))
        assert plan.passed_descriptors == (listener.socket.fileno(),)
        assert (frontend.served_model_name, frontend.exit_with_parent) == (("a", "*"), True)
        assert frontend.grace_s == engine.grace_s
        assert frontend.sampling_defaults == GenerationDefaults(temperature=0.5, top_p=0.9, top_k=40, min_p=0.05)
        assert frontend.max_tokens == 512
        assert (frontend.max_body_bytes, frontend.allowed_origins) == (5_000, ("http://a:1", "*"))
        assert (frontend.chat_template, frontend.chat_template_args) == ("-{{ x }}", '{"a": 1}')
        assert frontend.use_default_chat_template
        assert (frontend.tool_parser, frontend.reasoning_parser) == ("hermes", "none")
        assert frontend.api_key_file == str(folder.path / "keys")
        listener.socket.close()


def test_a_zero_is_passed_on(folder: RuntimeFolder) -> None:
    """It is a value, not an absence."""
    settings = ServeSettings(temp=0.0, top_k=0, quantized_kv_start=0, runtime_dir=str(folder.path))
    listeners = open_listeners("127.0.0.1", (0,))
    engine, frontend = [plan.command(0) for plan in _plans(settings, SOURCE, listeners, None)]
    assert "--quantized-kv-start=0" in engine
    assert {"--temp=0.0", "--top-k=0"} <= set(frontend)
    assert "--trust-remote-code" not in engine
    listeners[0].socket.close()


def test_keys_are_on_no_command_line(folder: RuntimeFolder) -> None:
    """`ps` shows a file's name at most, and without keys not even that."""
    settings = ServeSettings(api_key=("sesame",), runtime_dir=str(folder.path))
    listeners = open_listeners("127.0.0.1", (0,))
    with ExitStack() as held:
        path = _key_file(settings, folder, held)
        commands = [plan.command(0) for plan in _plans(settings, SOURCE, listeners, path)]
        assert "sesame" not in str(commands)
        assert ["--api-key-file" in command for command in commands] == [False, True]
        assert path is not None
        assert path.read_text() == "sesame\n"
    assert not path.exists()
    with ExitStack() as held:
        assert _key_file(ServeSettings(), folder, held) is None
    listeners[0].socket.close()


@pytest.mark.parametrize(("host", "is_warned"), [("127.0.0.1", False), ("0.0.0.0", True), ("::1", False)])
def test_an_open_address_without_a_key_is_warned_of(
    host: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names the ports and what to do; none where only this machine can connect."""
    listeners = open_listeners(host, (0, 0))
    _warn_of_strangers(listeners)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == is_warned
    if is_warned:
        assert f"on port {listeners[0].port}, {listeners[1].port} may use the model" in lines[0]
        assert "--api-key-file" in lines[0]
    for listener in listeners:
        listener.socket.close()


def test_guesses_that_nobody_makes_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """A number alone has no effect; 0 was given, too."""
    _warn_of_idle_guesses(ServeSettings())
    _warn_of_idle_guesses(ServeSettings(num_draft_tokens=3, draft_model="small"))
    assert capsys.readouterr().err == ""
    _warn_of_idle_guesses(ServeSettings(num_draft_tokens=0))
    assert "--num-draft-tokens 0 has no effect without --draft-model" in capsys.readouterr().err


def test_a_busy_port_is_said_before_anything_is_started(folder: RuntimeFolder) -> None:
    """F8: one line naming the port, the folder free again, no state left."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        settings = ServeSettings(model="/no/such/model", port=(0, port), runtime_dir=str(folder.path))
        with pytest.raises(CommandError, match=f"port {port} on 127.0.0.1 is in use"):
            serve(settings)
    assert read_state(folder) is None
    os.close(lock_supervisor(folder))


def test_a_missing_model_is_said_before_anything_is_started(folder: RuntimeFolder) -> None:
    """F8: the ports and the folder are free again."""
    settings = ServeSettings(model="/no/such/model", port=(0,), runtime_dir=str(folder.path))
    with pytest.raises(CommandError, match="no model '/no/such/model'"):
        serve(settings)
    assert read_state(folder) is None
    os.close(lock_supervisor(folder))


def test_a_folder_that_is_not_ours_alone_is_refused(folder: RuntimeFolder) -> None:
    """F8: other users could talk to the engine."""
    folder.path.chmod(0o755)
    with pytest.raises(CommandError, match="is open to other users"):
        serve(ServeSettings(port=(0,), runtime_dir=str(folder.path)))


def test_a_second_serve_in_one_folder_is_refused(folder: RuntimeFolder) -> None:
    """Before it binds a port or loads a model."""
    descriptor = lock_supervisor(folder)
    try:
        with pytest.raises(CommandError, match="is in use by another engine-ctl serve"):
            serve(ServeSettings(port=(0,), runtime_dir=str(folder.path)))
    finally:
        os.close(descriptor)


def test_a_lost_folder_does_not_end_what_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A full disk, or a folder that a cleaner has taken away, is said and costs the state file alone."""
    gone = RuntimeFolder(tmp_path / "gone")
    plan = ChildPlan("engine", lambda _: [])
    observer = _Terminal(gone, SOURCE, []).observer()
    observer.on_change([Child(plan, RestartPolicy(), lambda: 0.0)])
    assert "state file in" in capsys.readouterr().err


def test_says_where_it_serves_and_how_to_try_it(folder: RuntimeFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per port with the whole base URL, one with the page's, and one curl line."""
    listeners = open_listeners("127.0.0.1", (0, 0))
    observer = _Terminal(folder, SOURCE, listeners).observer()
    status = EngineStatus(
        epoch="e", protocol_version=1, pid=1, phase="ready", model=ModelStatus(id="tiny", path="/m", max_rows=8)
    )
    observer.on_serving(0, status)
    observer.on_serving(1, status)
    first, page, try_it, second = capsys.readouterr().out.splitlines()
    assert first == f"serving tiny at {listeners[0].url}/v1 (up to 8 at once)"
    assert second == f"serving tiny at {listeners[1].url}/v1 (up to 8 at once)"
    assert page == f"chat in a browser: {listeners[0].url}/"
    assert try_it.startswith(f"try it: curl -N {listeners[0].url}/v1/chat/completions ")
    _Terminal(folder, SOURCE, listeners, is_chat=False).observer().on_serving(0, status)
    *_, why, try_it = capsys.readouterr().out.splitlines()
    assert "no chat template" in why
    assert try_it.startswith(f"try it: curl -N {listeners[0].url}/v1/completions ")
    observer.on_stopping()
    assert [listener.socket.fileno() for listener in listeners] == [-1, -1]
