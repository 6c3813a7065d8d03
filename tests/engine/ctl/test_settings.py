"""What `serve` takes from flags and from a file."""

from pathlib import Path

import pytest

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.settings import ServeSettings, serve_settings


def write(folder: Path, text: str) -> Path:
    """A configuration file."""
    path = folder / "serve.toml"
    path.write_text(text)
    return path


def test_defaults_are_smollm2_on_8080() -> None:
    """Nothing given: the packaged model, one frontend, this machine only."""
    settings = serve_settings({}, None)
    assert (settings.model, settings.host, settings.port, settings.max_rows) == ("smollm2", "127.0.0.1", (8080,), 32)


def test_file_takes_every_flags_name_and_flags_win(tmp_path: Path) -> None:
    """Both spellings of a key work, one value stands for a list of one, and a flag overrules the file."""
    path = write(
        tmp_path,
        'model = "m"\nhost = "0.0.0.0"\nport = 9001\nmax-rows = 4\ndtype = "float32"\nruntime_dir = "/r"\n'
        'served-model-name = ["a", "*"]\nlog-level = "debug"\n',
    )
    expected = ServeSettings(
        model="m",
        host="0.0.0.0",
        port=(9002, 9003),
        max_rows=4,
        dtype="float32",
        runtime_dir="/r",
        served_model_name=("a", "*"),
        log_level="debug",
    )
    assert serve_settings({"port": [9002, 9003]}, path) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "unknown key 'prot'"),
        ("max_rows = 0", "max_rows 0: must be a whole number from 1 to 256"),
        ('max_rows = "four"', "max_rows four: must be a whole number from 1 to 256"),
        ("port = [1, 70000]", "port 70000: must be a whole number from 0 to 65535"),
        ('dtype = "int8"', "dtype int8: must be one of auto, float32"),
        ("max-rows = 1\nmax_rows = 2", "'max_rows' is there twice"),
        ("port =", "cannot read"),
    ],
)
def test_a_wrong_file_is_refused_naming_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    """A configuration file is never half understood."""
    path = write(tmp_path, text)
    with pytest.raises(CommandError) as failure:
        serve_settings({}, path)
    assert str(path) in failure.value.message
    assert said in failure.value.message
    assert failure.value.exit_code == EXIT_USAGE


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    """--config of a file that is not there."""
    with pytest.raises(CommandError, match=r"cannot read .*none\.toml: No such file"):
        serve_settings({}, tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"max_rows": 257}, "--max-rows (--decode-concurrency) 257: must be a whole number from 1 to 256"),
        ({"port": [8080, 8080]}, "--port 8080 is given twice"),
        ({"model": ""}, "--model '': must be a text that is not empty"),
        ({"served_model_name": [""]}, "--served-model-name '': must be a text of 1 to 256 characters"),
        ({"kv_bits": 5}, "--kv-bits 5: 5 bits are not supported; take 4 or 8"),
        ({"kv_bits": 4, "kv_group_size": 48}, "groups of 48 are not supported"),
        ({"kv_bits": 4, "kv_scheme": "config"}, "--kv-bits and --kv-scheme exclude each other"),
        ({"kv_group_size": 32}, "--kv-group-size needs --kv-bits"),
        ({"quantized_kv_start": 9, "kv_scheme": "config"}, "--quantized-kv-start needs --kv-bits"),
    ],
)
def test_a_wrong_flag_is_refused_by_its_own_name(flags: dict[str, object], said: str) -> None:
    """The user sees the option as it is written, and exit status 2."""
    with pytest.raises(CommandError) as failure:
        serve_settings(flags, None)
    assert said in failure.value.message
    assert failure.value.exit_code == EXIT_USAGE


def test_origins_are_repeated_or_have_commas() -> None:
    """mlx_lm.server takes a list with commas."""
    given = {"allowed_origins": ["http://a:1, https://b.example", "vscode-webview://x", "*", "null"]}
    assert serve_settings(given, None).allowed_origins == (
        "http://a:1",
        "https://b.example",
        "vscode-webview://x",
        "*",
        "null",
    )


@pytest.mark.parametrize("origin", ["a.example", "http://a/", "http://a/path", "", "http://a,", "http://"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    """A path, or a scheme left out, would never match what a browser sends."""
    with pytest.raises(CommandError, match="must be http://HOST") as refused:
        serve_settings({"allowed_origins": [origin]}, None)
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"chat_template": "/no/such/file"}, "--chat-template /no/such/file: there is no such file"),
        ({"chat_template_args": "[]"}, "--chat-template-args []: not a JSON object"),
    ],
)
def test_a_wrong_template_is_refused_before_the_model_is_found(flags: dict[str, object], said: str) -> None:
    """A template itself, or a file that is there, is not judged here."""
    with pytest.raises(CommandError) as refused:
        serve_settings(flags, None)
    assert refused.value.message.startswith(said)
    assert serve_settings({"chat_template": "{{ x }}"}, None).chat_template == "{{ x }}"
    assert serve_settings({"chat_template": __file__}, None).chat_template == __file__


def test_several_free_ports_may_be_asked_for() -> None:
    """Port 0 is no port: it may be given twice."""
    assert serve_settings({"port": [0, 0]}, None).port == (0, 0)
