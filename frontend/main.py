"""The frontend process from its settings to its exit status.

Owns sockets, signals and the order of start and stop; serving is app's, the engine engine_client's.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from aiohttp import web

from frontend.api_keys import ApiKeys
from frontend.app import build_app
from frontend.engine_client import EngineClient
from frontend.http_server import HttpRunner
from frontend.interpreter import set_turns, settle_garbage
from frontend.model_text import ModelText, Parsers, load_model_text
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS, check_parser
from frontend.parts import FrontendParts
from frontend.settings import Address, Settings
from frontend.template_choice import template_choice
from frontend.text.template import TemplateChoice
from protocol.endpoint import RuntimeFolder, open_runtime_folder
from protocol.errors import EXIT_BAD_SETTING, ErrorCode, ProtocolError
from protocol.key_file import read_key_file
from protocol.logs import setup_logging
from protocol.messages import BosRule, ClientInfo
from protocol.settings import parse_settings

log = logging.getLogger(__name__)

PROGRAM: Final = "frontend"
_BACKLOG: Final = 1_024
# What the kernel may hold for a client that does not read; a whole stream must not vanish in there.
_SEND_BUFFER_BYTES: Final = 64 * 1024
_PARENT_CHECK_S: Final = 1.0
# Each may hold a long prompt; two keep both cores of a small machine.
_TOKENIZING_THREADS: Final = 2


def main(arguments: list[str]) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit status."""
    try:
        settings = parse_settings(Settings, arguments, PROGRAM)
        setup_logging(settings.log_level)
        opened = _open(settings)
    except ProtocolError as error:
        sys.stderr.write(f"{PROGRAM}: {error.message.removeprefix(f'{PROGRAM}: ')}\n")
        return EXIT_BAD_SETTING
    log.debug("frontend.settings", extra=msgspec.structs.asdict(settings))
    set_turns()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, opened))
    except Exception:  # the process's last word
        log.exception("frontend.died")
        return 1
    log.info("frontend.stopped")
    return 0


@dataclass(frozen=True, slots=True)
class _Opened:
    """What the settings name, found sound."""

    folder: RuntimeFolder
    keys: ApiKeys
    choice: TemplateChoice
    parsers: Parsers
    listener: socket.socket


def _open(settings: Settings) -> _Opened:
    """Raises ProtocolError naming the setting. The socket comes last: until then there is nothing to close."""
    return _Opened(
        folder=open_runtime_folder(Path(settings.runtime_dir)),
        keys=ApiKeys(read_key_file(Path(settings.api_key_file)) if settings.api_key_file else ()),
        choice=template_choice(settings),
        parsers=_parsers(settings),
        listener=open_listener(settings),
    )


def _parsers(settings: Settings) -> Parsers:
    check_parser(settings.tool_parser, TOOL_FORMATS, "--tool-parser")
    check_parser(settings.reasoning_parser, REASONING_FORMATS, "--reasoning-parser")
    return Parsers(settings.tool_parser, settings.reasoning_parser)


def open_listener(settings: Settings) -> socket.socket:
    """The listening socket: inherited, or bound here. Raises ProtocolError(BAD_SETTING)."""
    if settings.fd is None:
        listener = _bound(settings.address)
    elif settings.host is None and settings.port is None:
        listener = _inherited(settings.fd)
    else:
        raise ProtocolError(ErrorCode.BAD_SETTING, f"--fd {settings.fd} excludes --host and --port")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    listener.setblocking(False)
    return listener


def _inherited(descriptor: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ProtocolError(ErrorCode.BAD_SETTING, f"--fd {descriptor}: not a socket ({error.strerror})") from error
    is_tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and listener.type == socket.SOCK_STREAM
    if not is_tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.detach()
        raise ProtocolError(ErrorCode.BAD_SETTING, f"--fd {descriptor}: not a listening TCP socket")
    return listener


def _bound(wanted: Address) -> socket.socket:
    host, port = wanted
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ProtocolError(
            ErrorCode.BAD_SETTING, f"--host {host} --port {port}: cannot listen there: {reason}"
        ) from error


def url_of(listener: socket.socket) -> str:
    """Where a listening socket serves."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _serve(settings: Settings, opened: _Opened) -> None:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_TOKENIZING_THREADS, thread_name_prefix="tokenize"))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listens = (url_of(opened.listener),)
    info = ClientInfo(name=PROGRAM, pid=os.getpid(), listens=listens)
    client = EngineClient(opened.folder, info, partial(load_settled, opened.choice, opened.parsers))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(client.run())
        parent = group.create_task(_follow_parent(stop)) if settings.exit_with_parent else None
        await _serve_http(FrontendParts(settings, client, listens, opened.keys), opened.listener, stop)
        following.cancel()
        if parent is not None:
            parent.cancel()


def load_settled(choice: TemplateChoice, parsers: Parsers, folder: Path, bos: BosRule) -> ModelText:
    """A model's text, with which the process is as it will stay: all later garbage is of requests."""
    text = load_model_text(folder, bos, choice, parsers)
    settle_garbage()
    return text


async def _serve_http(parts: FrontendParts, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serves until stop; then takes no connection more, and lets running requests go on for the grace."""
    runner = HttpRunner(
        build_app(parts),
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=parts.settings.grace_s,
        keepalive_timeout=75.0,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener, backlog=_BACKLOG).start()
        log.info("frontend.listening", extra={"url": parts.listens[0]})
        await stop.wait()
        log.info("frontend.stopping", extra={"rows": parts.client.row_count, "grace_s": parts.settings.grace_s})
    finally:
        await runner.cleanup()


async def _follow_parent(stop: asyncio.Event) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PARENT_CHECK_S):
                await stop.wait()
                return
    log.warning("frontend.parent_gone", extra={"parent_pid": parent})
    stop.set()
