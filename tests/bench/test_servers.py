"""A child server is waited for, and leaves nothing behind."""

from pathlib import Path

import psutil
import pytest

from bench.servers import Launch, free_port, our_launch, running, their_launch

_SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
    def log_message(self, *words): pass
print("serving", flush=True)
try: http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
except KeyboardInterrupt: print("interrupted", flush=True)
"""


def test_a_server_is_up_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    """It is interrupted, not killed, and its output is in the log."""
    port = free_port()
    with running(Launch("fake", ("-c", _SERVE, str(port)), port, "/health"), tmp_path / "log") as server:
        assert server.process.is_running()
        assert server.cpu_s() > 0
    assert not psutil.pid_exists(server.process.pid)
    assert (tmp_path / "log").read_text() == "serving\ninterrupted\n"


def test_a_server_that_ends_at_once_is_an_error_with_its_words(tmp_path: Path) -> None:
    """No bench waits for a server that is dead."""
    launch = Launch("fake", ("-c", "raise SystemExit('no model')"), free_port(), "/health")
    with pytest.raises(RuntimeError, match="fake ended with 1: no model"), running(launch, tmp_path / "log"):
        pass


def test_both_servers_get_the_same_model() -> None:
    """Each by its own options."""
    ours = our_launch(Path("m"), 1, Path("run"), 64)
    theirs = their_launch(Path("m"), 2)
    words = "serve --model m --port 1 --runtime-dir run --max-rows 64 --served-model-name *"
    assert list(ours.arguments[2:]) == words.split()
    assert theirs.arguments == ("-m", "bench.mlx_lm_server", "--model", "m", "--port", "2")
    assert [ours.url, theirs.url] == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
