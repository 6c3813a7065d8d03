"""The command line itself."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.ctl import app as app_module
from engine.ctl.app import app, main
from engine.ctl.failure import EXIT_NOT_RUNNING, EXIT_USAGE


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and output of one command."""
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_version_is_the_distributions() -> None:
    """`--version` is one line."""
    assert run("--version") == (0, "engine-ctl 0.1.0\n")


def test_status_of_nothing_is_a_clear_line_and_3(tmp_path: Path) -> None:
    """For people and for scripts, whether the folder exists or not."""
    for folder in (tmp_path / "none", tmp_path):
        code, output = run("status", "--runtime-dir", str(folder))
        assert (code, output.count("\n")) == (EXIT_NOT_RUNNING, 1)
        assert f"nothing runs in {folder}; start it with `engine-ctl serve`, or name another folder with" in output
        assert run("status", "--json", "--runtime-dir", str(folder)) == (3, '{"phase":"stopped"}\n')


def test_pull_lists_what_there_is() -> None:
    """Name, what it is, and whether it is here."""
    code, output = run("pull", "--list")
    assert code == 0
    assert output.startswith("smollm2\tSmolLM2-135M-Instruct\t")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["serve", "--max-rows", "0"],
            "engine-ctl: --max-rows (--decode-concurrency) 0: must be a whole number from 1 to 256",
        ),
        (["serve", "--config", "/no/such.toml"], "engine-ctl: cannot read /no/such.toml"),
        (["serve", "--port", "1", "--port", "1"], "engine-ctl: --port 1 is given twice"),
        (["pull", "nonsense"], "engine-ctl: no model 'nonsense'"),
        (["pull"], "engine-ctl: pull what?"),
        (["serve", "--no-such-flag"], "No such option"),
    ],
)
def test_wrong_usage_is_exit_2_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """Whatever the user mistypes, he reads what to type."""
    monkeypatch.setattr(sys, "argv", ["engine-ctl", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == EXIT_USAGE
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_serve_hands_over_flags_only_when_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not on the command line may come from the file."""
    heard: list[object] = []
    command = app_module.command_of(app_module.ServeSettings, lambda flags, config: heard.append((flags, config)))
    single = app_module.typer.Typer()
    single.command()(command)
    arguments = ["--port", "1", "--port", "2", "--decode-concurrency", "3", "--config", "x.toml", "--top-p", "0.9"]
    assert CliRunner().invoke(single, arguments).exit_code == 0
    assert CliRunner().invoke(single, []).exit_code == 0
    assert heard == [({"port": [1, 2], "max_rows": 3, "top_p": 0.9}, Path("x.toml")), ({}, None)]
