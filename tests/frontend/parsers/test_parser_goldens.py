"""Every format reads the texts in goldens/parsers as they say, wherever the text is cut."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from tests.frontend.parsers.golden_cases import Case, cases, golden_files, load, splits, told
from tests.frontend.parsers.regen_parsers import regenerated

KINDS = [
    re.compile(kind)
    for kind in ("one call", "two calls", "text .*around", "nested arguments", ".*unicode", "cut ", "malformed$")
]
ALL = [pytest.param(case, id=f"{path.stem}-{name}") for path in golden_files() for name, case in cases(path).items()]


@pytest.mark.parametrize("case", ALL)
def test_a_case_is_read_alike_at_every_split(case: Case) -> None:
    """At once, character by character, and at each cut in two."""
    assert [told(case.form, pieces) for pieces in splits(case.text)] == [case.pieces] * (len(case.text) + 1)


@pytest.mark.parametrize("case", ALL)
def test_told_arguments_are_one_json_object(case: Case) -> None:
    """Of every call that has ended; one that the model broke says so."""
    ended = [before[1] for before, after in zip(case.pieces, case.pieces[1:], strict=False) if after[0] == "end"]
    assert {type(json.loads(text)) for text in ended} <= {dict}


@pytest.mark.parametrize("path", golden_files(), ids=lambda path: path.stem)
def test_a_golden_is_what_its_command_writes(path: Path) -> None:
    """Nobody edits what was read by hand."""
    read = {name: case.pieces for name, case in cases(path).items()}
    assert path.read_text(encoding="utf-8") == regenerated(load(path), read)


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_a_call_format_has_a_case_of_each_kind(name: str) -> None:
    """One call, two, text around, nested arguments, unicode, a cut, and what is malformed."""
    names = [
        case["name"] for content in map(load, golden_files()) if content["tools"] == name for case in content["cases"]
    ]
    assert [kind for kind in KINDS if not any(kind.match(found) for found in names)] == []


def test_every_reasoning_format_has_six_cases() -> None:
    """One that is registered without them is not known to work."""
    counted = Counter({content["reasoning"]: 0 for content in map(load, golden_files())})
    for content in map(load, golden_files()):
        counted[content["reasoning"]] += len(content["cases"])
    assert [name for name in REASONING_FORMATS if counted[name] < 6] == []
