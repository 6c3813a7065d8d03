"""The listening sockets: bound and held by the supervisor, so that a restarted frontend refuses no connection."""

import errno
import ipaddress
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from engine.ctl.failure import CommandError

# Connections that wait while a frontend starts again.
_BACKLOG: Final = 1_024


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening socket. url: its origin as a client on this machine writes it, e.g. http://127.0.0.1:8080."""

    socket: socket.socket
    port: int
    url: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback


def open_listeners(host: str, ports: tuple[int, ...]) -> list[Listener]:
    """One listener per port, or none at all. Raises CommandError naming the port."""
    listeners: list[Listener] = []
    with ExitStack() as opened:
        for port in ports:
            listener = _open_listener(host, port)
            opened.callback(listener.socket.close)
            listeners.append(listener)
        opened.pop_all()
    return listeners


def _open_listener(host: str, port: int) -> Listener:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CommandError(f"--host {host}: {error.strerror}") from error
    # A name such as localhost has two addresses; clients try the older family, or both.
    family, kind, protocol, _, address = min(found, key=lambda item: item[0] != socket.AF_INET)
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise CommandError(_why_not(host, port, error)) from error
    bound_port = listening.getsockname()[1]
    return Listener(listening, bound_port, f"http://{_reachable(host)}:{bound_port}")


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; choose another with --port"
        case errno.EACCES:
            return f"port {port} on {host} is not allowed to this user; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"--host {host} is no address of this machine"
        case _:
            return f"cannot listen on port {port} of {host}: {error.strerror}"


def _reachable(host: str) -> str:
    match host:
        case "0.0.0.0":
            return "127.0.0.1"
        case "::":
            return "[::1]"
        case _:
            return f"[{host}]" if ":" in host else host
