"""Every format reads the texts in goldens/parsers as they say, wherever the text is cut."""

import json
from pathlib import Path

import pytest

from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from tests.frontend.parsers.golden_cases import Case, cases, golden_files, load, splits, told
from tests.frontend.parsers.regen_parsers import regenerated

ALL = [pytest.param(case, id=f"{path.stem}-{name}") for path in golden_files() for name, case in cases(path).items()]


@pytest.mark.parametrize("case", ALL)
def test_a_case_is_read_alike_at_every_split(case: Case) -> None:
    """At once, character by character, and at each cut in two."""
    assert [told(case.form, pieces) for pieces in splits(case.text)] == [case.pieces] * (len(case.text) + 1)


@pytest.mark.parametrize("case", ALL)
def test_told_arguments_are_one_json_object(case: Case) -> None:
    """Of every call that has ended, unless the model broke it."""
    ended = [before[1] for before, after in zip(case.pieces, case.pieces[1:], strict=False) if after[0] == "end"]
    assert {type(json.loads(text)) for text in ended if not case.is_broken} <= {dict}


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_a_golden_is_what_its_command_writes(path: Path) -> None:
    """Nobody edits what was read by hand."""
    read = {name: case.pieces for name, case in cases(path).items()}
    assert path.read_text(encoding="utf-8") == regenerated(load(path), read)


def test_every_format_has_six_cases() -> None:
    """One that is registered without them is not known to work."""
    counted: dict[tuple[str, str], int] = {}
    for content in map(load, golden_files()):
        for kind in ("tools", "reasoning"):
            key = (kind, content[kind])
            counted[key] = counted.get(key, 0) + len(content["cases"])
    known = [("tools", name) for name in TOOL_FORMATS] + [("reasoning", name) for name in REASONING_FORMATS]
    assert [key for key in known if counted.get(key, 0) < 6] == []
