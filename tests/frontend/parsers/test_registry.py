"""The registry: every format under its file's name, and a template claimed by one at most."""

from pathlib import Path

import pytest

import frontend.parsers
from frontend.parsers import registry
from frontend.parsers.base import ToolFormat
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS, ModelFormats, check_parser, formats_of
from protocol.errors import ProtocolError

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
    assert formats_of('x </think> <tool_call>{"name": …', None, None) == ModelFormats(
        TOOL_FORMATS["hermes"], REASONING_FORMATS["think"]
    )
    assert formats_of("plain", None, None) == ModelFormats(None, None)
    assert formats_of(None, None, None) == ModelFormats(None, None)


def test_a_name_wins_over_the_template() -> None:
    """Also `none`."""
    assert formats_of("plain", "hermes", "think") == ModelFormats(TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
    assert formats_of("x </think>", None, "none") == ModelFormats(None, None)


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
        formats_of("any", None, None)
