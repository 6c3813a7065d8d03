"""Each flag of mlx_lm.server is known to `serve`: it works, or is refused by name."""

import argparse
from typing import Any, NoReturn

import pytest
import typer.main

from engine.ctl.app import app
from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.settings import serve_settings, size_bytes


class _FoundError(Exception):
    """Carries the oracle's parser out."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def mlx_lm_options(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What mlx_lm.server's own parser takes."""
    server = pytest.importorskip("mlx_lm.server")

    def stop(self: argparse.ArgumentParser, *_: Any) -> NoReturn:
        raise _FoundError(self)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(_FoundError) as found:
        server.main()
    return {name for action in found.value.parser._actions for name in action.option_strings if name.startswith("--")}


def test_every_flag_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that mlx_lm gains fails here until somebody has decided about it."""
    serve = typer.main.get_group(app).commands["serve"]
    known = {name for parameter in serve.params for name in parameter.opts}
    wanted = mlx_lm_options(monkeypatch)
    assert len(wanted) > 20
    assert wanted - known == {"--help"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"pipeline": True}, "--pipeline: one engine uses one machine"),
    ],
)
def test_what_would_change_the_output_is_refused_by_name(flags: dict[str, Any], said: str) -> None:
    """With its value and what to do, before anything is started."""
    with pytest.raises(CommandError) as refused:
        serve_settings(flags, None)
    assert refused.value.message.startswith(said)
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("size", ["4GB", "1.5 gb", "500M", "8000000", "0", "2 g", "0.25MB"])
def test_sizes_of_mlx_lm(size: str) -> None:
    """All that its parser takes, as many bytes as there."""
    utils = pytest.importorskip("mlx_lm.utils")
    given = serve_settings({"prompt_cache_bytes": size}, None).prompt_cache_bytes
    assert given is not None
    assert size_bytes(given) == utils._parse_size(size)


@pytest.mark.parametrize(("size", "expected"), [("4GiB", 4 * 2**30), ("1.5 gib", 3 * 2**29), ("512MiB", 2**29)])
def test_sizes_by_powers_of_two(size: str, expected: int) -> None:
    """As vLLM has them."""
    given = serve_settings({"kv_cache_memory_bytes": size}, None).kv_cache_memory_bytes
    assert given is not None
    assert size_bytes(given) == expected


@pytest.mark.parametrize("size", ["4TB", "GB", "-1", "4 G B", "4iB", "4 GI"])
@pytest.mark.parametrize("flag", ["--prompt-cache-bytes", "--kv-cache-memory-bytes"])
def test_what_is_no_size_is_refused(flag: str, size: str) -> None:
    """By the flag's name, with what was said and what is taken."""
    with pytest.raises(CommandError) as refused:
        serve_settings({flag.removeprefix("--").replace("-", "_"): size}, None)
    said = f"{flag} {size}: a size is a number of bytes, or of M, MB, MiB, G, GB or GiB, as 4GB"
    assert (said, EXIT_USAGE) == (refused.value.message, refused.value.exit_code)
