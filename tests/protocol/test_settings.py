"""A field is an option: each kind of field is parsed, and a bad value is named as its user wrote it."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from protocol.errors import ErrorCode, ProtocolError
from protocol.settings import changed_settings, parse_settings


class _Example(msgspec.Struct, frozen=True, kw_only=True):
    """Settings with one field of every kind."""

    model: Annotated[str, Meta(min_length=1, description="what to serve, 100% of it")]
    max_rows: Annotated[int, Meta(ge=1, le=64, extra={"aliases": ("--decode-concurrency", "-n")})] = 32
    grace_s: Annotated[float, Meta(ge=0.0)] = 5.0
    is_quiet: bool = False
    dtype: Literal["auto", "float32"] = "auto"
    port: tuple[Annotated[int, Meta(ge=1, le=65_535)], ...] = ()
    served_model_name: tuple[str, ...] = ()
    seed: int | None = None
    limit_bytes: Annotated[int, Meta(ge=0)] | None = None


def _parsed(*arguments: str) -> _Example:
    return parse_settings(_Example, list(arguments), "example")


def test_absent_options_take_the_structs_defaults() -> None:
    """A default lives in one place, the struct."""
    assert _parsed("--model", "m") == _Example(model="m")


def test_every_kind_of_field_is_parsed() -> None:
    """Text, int, float, bool, choice, repeated and optional fields."""
    expected = _Example(
        model="m",
        max_rows=4,
        grace_s=0.5,
        is_quiet=True,
        dtype="float32",
        port=(8_080, 8_081),
        served_model_name=("a", "*"),
        seed=7,
        limit_bytes=0,
    )
    words = "--model m --max-rows 4 --grace-s 0.5 --is-quiet --dtype float32 --port 8080 --port 8081"
    words += " --served-model-name a --served-model-name * --seed 7 --limit-bytes 0"
    assert _parsed(*words.split()) == expected


@pytest.mark.parametrize("alias", ["--max-rows", "--decode-concurrency", "-n"])
def test_an_alias_is_the_same_option(alias: str) -> None:
    """Every name of a field sets it."""
    assert _parsed("--model", "m", alias, "3").max_rows == 3


def test_an_equals_sign_is_taken() -> None:
    """`--option=value` is the common other spelling."""
    assert _parsed("--model=m=1", "--seed=-5") == _Example(model="m=1", seed=-5)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--model m --max-rows 0", "--max-rows (--decode-concurrency, -n) 0: must be a whole number from 1 to 64"),
        ("--model m --max-rows 65", "--max-rows (--decode-concurrency, -n) 65: must be a whole number from 1 to 64"),
        (
            "--model m --max-rows many",
            "--max-rows (--decode-concurrency, -n) many: must be a whole number from 1 to 64",
        ),
        ("--model m --max-rows 1.5", "--max-rows (--decode-concurrency, -n) 1.5: must be a whole number from 1 to 64"),
        ("--model m --grace-s=-1", "--grace-s -1: must be a number of at least 0.0"),
        ("--model m --grace-s soon", "--grace-s soon: must be a number of at least 0.0"),
        ("--model m --dtype int3", "--dtype: invalid choice: 'int3' (choose from"),
        ("--model m --port 80 --port 99999", "--port 99999: must be a whole number from 1 to 65535"),
        ("--model m --seed x", "--seed x: must be a whole number"),
        ("--model m --max-row 3", "unrecognized arguments: --max-row"),
        ("--model m --nonsense", "unrecognized arguments: --nonsense"),
        ("--model m stray", "unrecognized arguments: stray"),
        ("--model m --is-quiet=yes", "--is-quiet: ignored explicit argument 'yes'"),
        ("--model", "--model: expected one argument"),
        ("--max-rows 3", "the following arguments are required: --model"),
    ],
)
def test_a_bad_value_names_the_option(words: str, complaint: str) -> None:
    """The message has the program, the option as typed, the value and what it takes."""
    with pytest.raises(ProtocolError) as refused:
        _parsed(*words.split())
    assert refused.value.code == ErrorCode.BAD_SETTING
    assert refused.value.message.startswith("example: ")
    assert complaint in refused.value.message


def test_an_empty_text_names_the_option() -> None:
    """Bounds of text are checked as those of numbers."""
    with pytest.raises(ProtocolError, match="--model '': must be a text that is not empty"):
        _parsed("--model", "")


def test_bytes_that_are_no_text_are_refused() -> None:
    """A file name may hold them; no message and no line of a log can."""
    with pytest.raises(ProtocolError, match=r"example: '/m\\udcff' is not UTF-8 text"):
        _parsed("--model", "/m\udcff")


def test_what_was_changed() -> None:
    """Only what is away from its default, required fields always."""
    assert changed_settings(_Example(model="m", max_rows=3)) == {"model": "m", "max_rows": 3}
    assert changed_settings(_Example(model="m")) == {"model": "m"}


def test_help_shows_the_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    """--help ends well and prints a field's description as written."""
    with pytest.raises(SystemExit) as ended:
        _parsed("--help")
    assert ended.value.code == 0
    assert "what to serve, 100% of it" in capsys.readouterr().out
