"""Every flag of every process names itself, its value and its limit when it is wrong, and nothing of how it is read."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec import Meta

from engine.ctl.failure import CommandError
from engine.ctl.settings import ServeSettings, serve_settings
from engine.settings import Settings as EngineSettings
from frontend.settings import Settings as FrontendSettings
from protocol.errors import ProtocolError
from protocol.setting_words import expected_words, option_names, unwrapped, wrong_setting
from protocol.settings import parse_settings

PROCESSES = {"engine": EngineSettings, "frontend": FrontendSettings}


class Wrong(NamedTuple):
    """A flag, a value that it does not take, and the numbers or words of its limit."""

    field: str
    value: Any
    limits: list[str]


def wrong_values(settings_type: type[msgspec.Struct]) -> Iterator[Wrong]:
    """For each field the values just outside of each of its limits, and one of another type."""
    for field, hint in get_type_hints(settings_type, include_extras=True).items():
        plain, metas = unwrapped(hint)
        if get_origin(plain) is tuple:
            plain, metas = unwrapped(get_args(plain)[0])
        bounds = {
            name: getattr(meta, name) for meta in metas for name in ("ge", "gt", "le", "min_length", "max_length")
        }
        for meta in metas:
            bounds |= {name: found for name in bounds if (found := getattr(meta, name)) is not None}
        if get_origin(plain) is Literal:
            yield Wrong(field, "nonsense", list(get_args(plain)))
        elif plain in (int, float):
            told = [str(bounds[name]) for name in ("ge", "gt", "le") if bounds.get(name) is not None]
            step = 1 if plain is int else 0.5
            yield Wrong(field, "many", told)
            yield from (Wrong(field, bounds[name] - step, told) for name in ("ge",) if bounds.get(name) is not None)
            yield from (Wrong(field, bounds[name], told) for name in ("gt",) if bounds.get(name) is not None)
            yield from (Wrong(field, bounds[name] + step, told) for name in ("le",) if bounds.get(name) is not None)
        elif plain is str:
            if bounds.get("min_length"):
                yield Wrong(field, "", [str(bounds["max_length"])] if bounds.get("max_length") else ["not empty"])
            if bounds.get("max_length"):
                yield Wrong(field, "x" * (bounds["max_length"] + 1), [str(bounds["max_length"])])


def check(message: str, wrong: Wrong) -> None:
    """What its user reads."""
    assert f"--{wrong.field.replace('_', '-')}" in message
    assert (str(wrong.value) or "''") in message
    assert all(limit in message for limit in wrong.limits), (message, wrong.limits)
    assert not [raw for raw in ("Expected `", "`$", "int`", "str`", "got `") if raw in message]


@pytest.mark.parametrize("program", PROCESSES)
def test_every_flag_of_a_process(program: str) -> None:
    """On its command line."""
    for wrong in wrong_values(PROCESSES[program]):
        others = [] if program == "frontend" or wrong.field == "model" else ["--model=m"]
        arguments = [*others, f"--{wrong.field.replace('_', '-')}={wrong.value}"]
        with pytest.raises(ProtocolError) as caught:
            parse_settings(PROCESSES[program], arguments, program)
        check(caught.value.message, wrong)


def test_every_flag_of_serve() -> None:
    """As the command line has read it, and as a file has it."""
    for wrong in wrong_values(ServeSettings):
        is_many = get_origin(unwrapped(get_type_hints(ServeSettings, include_extras=True)[wrong.field])[0]) is tuple
        with pytest.raises(CommandError) as caught:
            serve_settings({wrong.field: [wrong.value] if is_many else wrong.value}, None)
        check(caught.value.message, wrong)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"kv_bits": 5}, "--kv-bits 5: 5 bits are not supported; take 4 or 8"),
        ({"kv_bits": 4, "kv_group_size": 48}, "--kv-group-size 48: groups of 48 are not supported; take 32, 64, 128"),
        ({"prompt_cache_bytes": "lots"}, "--prompt-cache-bytes lots: a size is"),
        ({"kv_cache_memory_bytes": "1TB"}, "--kv-cache-memory-bytes 1TB: a size is"),
        ({"allowed_origins": ["http://a,b"]}, "--allowed-origins b: must be http://HOST"),
        ({"port": []}, "--port []: must be given 1 to 64 times"),
        ({"port": [1, 1]}, "--port 1 is given twice"),
        ({"chat_template": "none.jinja"}, "--chat-template none.jinja: there is no such file"),
        ({"chat_template_args": "{"}, "--chat-template-args {: not a JSON object"),
    ],
)
def test_limits_that_no_type_tells(flags: dict[str, Any], said: str) -> None:
    """Named by flag and value as well."""
    with pytest.raises(CommandError) as caught:
        serve_settings(flags, None)
    assert said in caught.value.message
    assert "Expected `" not in caught.value.message


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Annotated[int, Meta(ge=1, le=4)] | None, "a whole number from 1 to 4"),
        (Annotated[int, Meta(le=4)], "a whole number of at most 4"),
        (Annotated[float, Meta(gt=0, le=1)], "a number above 0 and of at most 1"),
        (float, "a number"),
        (bool, "true or false"),
        (Annotated[str, Meta(max_length=3)], "a text of at most 3 characters"),
        (Literal["a", "b"], "one of a, b"),
    ],
)
def test_what_a_type_takes(hint: Any, expected: str) -> None:
    """In words."""
    assert expected_words(hint) == expected


def test_all_names_of_a_flag_are_told() -> None:
    """Whoever typed an alias finds it."""
    hint = Annotated[int, Meta(ge=1, extra={"aliases": ("--decode-concurrency",)})]
    assert option_names("max_rows", hint) == ("--max-rows", "--decode-concurrency")
    wrong = wrong_setting(ServeSettings, {"max_rows": 0}, strict=True)
    assert wrong is not None
    assert wrong.of_option == "--max-rows (--decode-concurrency) 0: must be a whole number from 1 to 256"
    assert wrong.of_key == "max_rows 0: must be a whole number from 1 to 256"
    assert wrong_setting(ServeSettings, {"max_rows": 1}, strict=True) is None
