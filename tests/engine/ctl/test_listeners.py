"""The supervisor's listening sockets."""

import socket

import pytest

from engine.ctl.failure import CommandError
from engine.ctl.listeners import open_listeners


def test_listens_before_anybody_serves() -> None:
    """A connection is taken into the backlog while no frontend lives."""
    (listener,) = open_listeners("127.0.0.1", (0,))
    with listener.socket, socket.create_connection(("127.0.0.1", listener.port), timeout=5) as client:
        assert client.getpeername() == ("127.0.0.1", listener.port)
        assert listener.url == f"http://127.0.0.1:{listener.port}"


def test_a_busy_port_is_named_and_the_others_are_given_back() -> None:
    """F8: one clear line, nothing left behind."""
    with socket.socket() as free, socket.socket() as busy:
        free.bind(("127.0.0.1", 0))
        free_port = free.getsockname()[1]
        free.close()
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        busy_port = busy.getsockname()[1]
        with pytest.raises(CommandError) as failure:
            open_listeners("127.0.0.1", (free_port, busy_port))
    assert failure.value.message == f"port {busy_port} on 127.0.0.1 is in use; choose another with --port"
    (again,) = open_listeners("127.0.0.1", (free_port,))
    again.socket.close()


def test_a_strange_host_is_named() -> None:
    """An address of another machine."""
    with pytest.raises(CommandError, match=r"--host 192\.0\.2\.1 is no address of this machine"):
        open_listeners("192.0.2.1", (0,))


def test_any_address_is_shown_as_one_that_can_be_reached() -> None:
    """0.0.0.0 is no place to send a request to."""
    (listener,) = open_listeners("0.0.0.0", (0,))
    listener.socket.close()
    assert listener.url == f"http://127.0.0.1:{listener.port}"
