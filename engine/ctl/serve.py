"""`engine-ctl serve`: claims the folder and the ports, finds the model, then hands over to the supervisor."""

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from engine.ctl.api_keys import gathered_keys, hand_over
from engine.ctl.chat_template import has_chat_template
from engine.ctl.child import Child, ChildPlan, RestartPolicy
from engine.ctl.failure import CommandError
from engine.ctl.listeners import Listener, open_listeners
from engine.ctl.progress import progress_bar
from engine.ctl.pull import ModelSource, default_cache, resolve_model
from engine.ctl.settings import ServeSettings, serve_settings, size_bytes
from engine.ctl.state import FrontendState, SupervisorState, lock_supervisor, remove_state, write_state
from engine.ctl.supervisor import Observer, Supervisor
from engine.ctl.terminal import say, tell
from protocol.endpoint import RuntimeFolder, open_runtime_folder
from protocol.errors import ProtocolError
from protocol.status import EngineStatus

# What running requests get to finish at a stop; the policy's own grace is longer.
DRAIN_S: Final = 30.0
# Settings that only the engine reads, each under the same name.
_ENGINE: Final = (
    *("kv_bits", "kv_group_size", "quantized_kv_start", "kv_scheme"),
    *("prefill_step_size", "prompt_concurrency", "trust_remote_code", "adapter_path", "num_draft_tokens"),
    "prompt_cache_size",
)
# The same, told in bytes.
_SIZES: Final = ("kv_cache_memory_bytes", "prompt_cache_bytes")
# Settings that only the frontends read, each under the same name.
_HTTP: Final = (
    *("temp", "top_p", "top_k", "min_p", "max_tokens", "max_body_bytes"),
    *("chat_template", "chat_template_args", "use_default_chat_template", "tool_parser", "reasoning_parser"),
    *("response_store_bytes", "response_ttl_s"),
)


def run_serve(flags: dict[str, Any], config: Path | None) -> None:
    """Serve a model in the foreground: one engine, and one frontend per --port.

    Ctrl-C stops it cleanly, a second Ctrl-C at once.
    """
    raise SystemExit(serve(serve_settings(flags, config)))


def serve(settings: ServeSettings) -> int:
    """The exit status. What can fail without a process is done first, so that a failure leaves nothing behind."""
    try:
        folder = open_runtime_folder(Path(settings.runtime_dir))
    except ProtocolError as error:
        raise CommandError(error.message) from error
    with ExitStack() as held:
        held.callback(os.close, lock_supervisor(folder))
        listeners = open_listeners(settings.host, settings.port)
        for listener in listeners:
            held.callback(listener.socket.close)
        key_file = _key_file(settings, folder, held)
        if key_file is None:
            _warn_of_strangers(listeners)
        _warn_of_idle_guesses(settings)
        with progress_bar(Console(stderr=True)) as progress:
            source = resolve_model(settings.model, default_cache(), progress)
            draft = settings.draft_model
            draft_words = [] if draft is None else _draft_words(resolve_model(draft, default_cache(), progress))
        held.callback(remove_state, folder)
        is_chat = _is_given_template(settings) or has_chat_template(source.path)
        observer = _Terminal(folder, source, listeners, has_key=key_file is not None, is_chat=is_chat).observer()
        plans = _plans(settings, source, listeners, key_file, draft_words)
        return Supervisor(folder, plans, observer, RestartPolicy()).run()


def _is_given_template(settings: ServeSettings) -> bool:
    return settings.chat_template is not None or settings.use_default_chat_template


def _key_file(settings: ServeSettings, folder: RuntimeFolder, held: ExitStack) -> Path | None:
    """Where the frontends find the keys; None when no key is asked for. Gone when this process ends."""
    keys = gathered_keys(settings.api_key, settings.api_key_file)
    if not keys:
        return None
    path = hand_over(keys, folder)
    held.callback(path.unlink, missing_ok=True)
    return path


def _warn_of_strangers(listeners: list[Listener]) -> None:
    """One line when more than this machine can connect and nobody is asked who they are."""
    open_ports = [str(listener.port) for listener in listeners if not listener.is_loopback]
    if open_ports:
        say(
            f"warning: whoever reaches this machine on port {', '.join(open_ports)} may use the model: "
            "ask for a key with --api-key-file, or leave --host out"
        )


def _warn_of_idle_guesses(settings: ServeSettings) -> None:
    """One line when a number of guesses was given and nobody makes any; mlx_lm.server takes it in silence."""
    if settings.num_draft_tokens is not None and settings.draft_model is None:
        say(f"--num-draft-tokens {settings.num_draft_tokens} has no effect without --draft-model")


def _draft_words(draft: ModelSource) -> list[str]:
    return ["--draft-model", str(draft.path), "--draft-model-id", draft.id]


def _plans(
    settings: ServeSettings,
    source: ModelSource,
    listeners: list[Listener],
    key_file: Path | None,
    draft: Sequence[str] = (),
) -> list[ChildPlan]:
    # -P: a folder named `engine` where the user stands must not be taken for ours.
    python = [sys.executable, "-P", "-m"]
    names = _repeated("--served-model-name", settings.served_model_name)
    folder = ["--runtime-dir", str(Path(settings.runtime_dir).expanduser().absolute())]
    shared = [*folder, "--log-level", settings.log_level, "--grace-s", str(DRAIN_S), "--exit-with-parent", *names]
    model = ["--model", str(source.path), "--model-id", source.id, *draft]
    limits = ["--max-rows", str(settings.max_rows), "--dtype", settings.dtype, *_given(settings, _ENGINE)]
    for name in _SIZES:
        size: str | None = getattr(settings, name)
        if size is not None:
            limits += [f"--{name.replace('_', '-')}", str(size_bytes(size))]
    adapters = _repeated("--adapter", settings.adapter)
    http = [*_given(settings, _HTTP), *_repeated("--allowed-origins", settings.allowed_origins)]
    if key_file is not None:
        http += ["--api-key-file", str(key_file)]

    def engine_command(restarts: int) -> list[str]:
        return [*python, "engine", *model, *limits, *adapters, "--restarts", str(restarts), *shared]

    def frontend_plan(listener: Listener) -> ChildPlan:
        descriptor = listener.socket.fileno()
        command = [*python, "frontend", "--fd", str(descriptor), *http, *shared]
        return ChildPlan(f"frontend {listener.port}", lambda _: command, (descriptor,))

    return [ChildPlan("engine", engine_command), *map(frontend_plan, listeners)]


def _repeated(option: str, values: tuple[str, ...]) -> list[str]:
    """The words of an option that is given once for each value."""
    return [word for value in values for word in (option, value)]


def _given(settings: ServeSettings, names: tuple[str, ...]) -> list[str]:
    """The words that pass on those of these settings that the user gave."""
    values = {name: getattr(settings, name) for name in names}
    given = {f"--{name.replace('_', '-')}": value for name, value in values.items() if value is not None}
    # One word each: a template may begin with a dash.
    return [option if value is True else f"{option}={value}" for option, value in given.items() if value is not False]


@dataclass(frozen=True, slots=True)
class _Terminal:
    """Tells the user and the state file what the supervisor sees. is_chat: the model's chats have a template."""

    folder: RuntimeFolder
    source: ModelSource
    listeners: list[Listener]
    has_key: bool = False
    is_chat: bool = True

    def observer(self) -> Observer:
        return Observer(self._write_state, self._say_serving, self._close_listeners)

    def _write_state(self, children: list[Child]) -> None:
        engine, *frontends = children
        states = (
            FrontendState(port=listener.port, url=listener.url, pid=child.pid, restarts=child.restarts)
            for listener, child in zip(self.listeners, frontends, strict=True)
        )
        state = SupervisorState(
            pid=os.getpid(),
            model_id=self.source.id,
            model_path=str(self.source.path),
            engine_pid=engine.pid,
            engine_restarts=engine.restarts,
            frontends=tuple(states),
        )
        try:
            write_state(self.folder, state)
        except OSError as error:
            say(f"the state file in {self.folder.path} cannot be written, `status` may be wrong: {error.strerror}")

    def _say_serving(self, index: int, status: EngineStatus) -> None:
        url = self.listeners[index].url
        rows = f"up to {status.model.max_rows} at once" if status.model else "ready"
        if status.batching and status.batching.mode == "serial":
            rows = f"one at a time: {status.batching.reason}"
        tell(f"serving {self.source.id} at {url}/v1 ({rows})", sys.stdout)
        if index == 0:
            self._say_how(url)

    def _say_how(self, url: str) -> None:
        key = " -H 'Authorization: Bearer YOUR-KEY'" if self.has_key else ""
        head = f"-H 'Content-Type: application/json'{key}"
        print(f"chat in a browser: {url}/", flush=True)
        if self.is_chat:
            body = """'{"messages": [{"role": "user", "content": "Hello!"}], "stream": true}'"""
            print(f"try it: curl -N {url}/v1/chat/completions {head} -d {body}", flush=True)
            return
        print(
            "this model has no chat template and is probably no chat model: its chats are plain text, "
            "each message behind USER: or ASSISTANT: (or choose a template with --chat-template)"
        )
        body = """'{"prompt": "The sea is", "max_tokens": 40, "stream": true}'"""
        print(f"try it: curl -N {url}/v1/completions {head} -d {body}", flush=True)

    def _close_listeners(self) -> None:
        """From now on a new connection is refused at once instead of waiting for nobody."""
        for listener in self.listeners:
            listener.socket.close()
