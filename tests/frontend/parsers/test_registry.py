"""The registry: every format under its file's name, and a template claimed by one at most."""

import importlib.util
from pathlib import Path

import pytest

import frontend.parsers
from frontend.parsers import registry
from frontend.parsers.base import ToolFormat
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS, Declared, ModelFormats, check_parser, formats_of
from protocol.errors import ProtocolError
from tests.frontend.parsers.generated_calls import templates

TEMPLATES = templates()
FOLDER = Path(frontend.parsers.__file__).parent


@pytest.mark.parametrize(("folder", "formats"), [("tools", TOOL_FORMATS), ("reasoning", REASONING_FORMATS)])
def test_every_file_is_registered_under_its_name(folder: str, formats: dict[str, object]) -> None:
    """A format that is not asked does not exist; a name that is not a file's cannot be found."""
    files = {path.stem for path in (FOLDER / folder).glob("*.py") if path.stem != "__init__"}
    assert files == set(formats)


def test_a_name_is_given_once() -> None:
    """The second format of a name would hide the first."""
    with pytest.raises(ValueError, match="twice"):
        registry._by_name((TOOL_FORMATS["hermes"], TOOL_FORMATS["hermes"]))


def test_a_template_chooses_its_formats() -> None:
    """None where it has no tools, or there is no template."""
    assert formats_of(Declared('x </think> <tool_call>{"name": …'), None, None) == ModelFormats(
        TOOL_FORMATS["hermes"], REASONING_FORMATS["think"]
    )
    assert formats_of(Declared("plain"), None, None) == ModelFormats(None, None)
    assert formats_of(Declared(None), None, None) == ModelFormats(None, None)


def test_a_name_wins_over_the_template() -> None:
    """Also `none`."""
    assert formats_of(Declared("plain"), "hermes", "think") == ModelFormats(
        TOOL_FORMATS["hermes"], REASONING_FORMATS["think"]
    )
    assert formats_of(Declared("x </think>"), None, "none") == ModelFormats(None, None)


def test_an_unknown_name_is_refused_with_the_names_that_are() -> None:
    """A typing error is seen at the start."""
    with pytest.raises(ProtocolError) as caught:
        check_parser("hermse", TOOL_FORMATS, "--tool-parser")
    assert caught.value.message.startswith("--tool-parser hermse: there is no such parser; take none or one of hermes")


def test_a_template_that_two_formats_claim_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the one that happens to be first."""
    greedy = [ToolFormat(name=name, claims=lambda template: True, read=TOOL_FORMATS["hermes"].read) for name in "ab"]
    monkeypatch.setattr(registry, "TOOL_FORMATS", {one.name: one for one in greedy})
    with pytest.raises(ProtocolError, match="claimed by a and b"):
        formats_of(Declared("any"), None, None)


@pytest.mark.parametrize(
    ("declared", "template", "expected"),
    [
        ("json_tools", "x <｜tool▁sep｜>", "hermes"),
        ("pythonic", None, "lfm2"),
        ("laguna", "plain", "glm47"),
        ("mistral", "plain", "mistral"),
        ("llama3_json", "plain", "llama3_json"),
        ("runes", 'x <tool_call>{"name": …', "hermes"),
        ("runes", "plain", None),
        (None, "plain", None),
    ],
)
def test_a_declared_parser_wins_over_the_template(
    declared: str | None, template: str | None, expected: str | None
) -> None:
    """By mlx-lm's name or ours; one that is not known leaves it to the template, and is not readable."""
    model = Declared(template, tool_parser=declared)
    chosen = formats_of(model).tools
    assert (chosen and chosen.name) == expected
    assert bool(model.readable) == (declared not in (None, "runes"))


def test_a_template_chooses_among_what_was_declared() -> None:
    """mlx-lm has one parser for both of GLM's forms."""
    for name in ("glm45", "glm47"):
        chosen = formats_of(Declared(TEMPLATES[name], tool_parser="glm47")).tools
        assert chosen is TOOL_FORMATS[name]


def test_the_operators_word_wins_over_what_is_declared() -> None:
    """Also `none`."""
    model = Declared("plain", tool_parser="mistral")
    assert formats_of(model, "hermes").tools is TOOL_FORMATS["hermes"]
    assert formats_of(model, "none").tools is None


def test_every_parser_of_mlx_lm_is_read() -> None:
    """A model that names one of them is read as mlx-lm reads it."""
    found = importlib.util.find_spec("mlx_lm")
    assert found is not None
    assert found.origin is not None
    names = {path.stem for path in (Path(found.origin).parent / "tool_parsers").glob("*.py")} - {"__init__"}
    assert len(names) > 10
    assert {name for name in names if not Declared(None, tool_parser=name).readable} == set()
