"""The engine's options."""

import pytest

from engine.settings import Settings
from protocol.endpoint import default_runtime_path
from protocol.errors import ProtocolError
from protocol.settings import parse_settings


def parse(*arguments: str) -> Settings:
    return parse_settings(Settings, ["--model", "m", *arguments], "engine")


def test_only_the_model_is_needed() -> None:
    """Every other option has a default that serves."""
    settings = parse()
    assert settings == Settings(model="m")
    assert settings.runtime_dir == str(default_runtime_path())
    assert (settings.max_rows, settings.max_waiting, settings.dtype) == (32, 1_024, "auto")
    assert (settings.step_limit_s, settings.lease_s, settings.grace_s) == (120.0, 15.0, 30.0)


def test_the_old_name_of_max_rows_works() -> None:
    """`--decode-concurrency` is mlx_lm.server's name for it."""
    assert parse("--decode-concurrency", "3").max_rows == 3


def test_names_may_be_repeated() -> None:
    """Each --served-model-name adds one."""
    assert parse("--served-model-name", "a", "--served-model-name", "*").served_model_name == ("a", "*")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-rows", "0"),
        ("--max-rows", "257"),
        ("--max-rows", "many"),
        ("--max-waiting", "0"),
        ("--prefill-step-size", "0"),
        ("--context-length", "1"),
        ("--dtype", "float8"),
        ("--step-limit-s", "0"),
        ("--lease-s", "-1"),
        ("--grace-s", "-1"),
        ("--restarts", "-1"),
        ("--log-level", "loud"),
        ("--model", ""),
        ("--colour", "red"),
    ],
)
def test_a_bad_value_is_refused_by_the_options_name(option: str, value: str) -> None:
    """The message names the option."""
    with pytest.raises(ProtocolError) as caught:
        parse(option, value)
    assert option in caught.value.message


def test_a_missing_model_is_refused() -> None:
    """There is no default model: engine-ctl chooses one."""
    with pytest.raises(ProtocolError) as caught:
        parse_settings(Settings, [], "engine")
    assert "--model" in caught.value.message
