"""The committed transcripts, error table and field tables are what the code makes today."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, cast, get_args

import pytest

from frontend import dialects
from frontend.dialects.fields import FieldRule
from tests.frontend.dialects.regen_dialects import GOLDENS, TABLES, golden_texts

TEXTS = golden_texts()


@pytest.mark.parametrize("name", TEXTS)
def test_golden_is_unchanged(name: str) -> None:
    """Byte for byte, field order included."""
    assert (GOLDENS / name).read_text(encoding="utf-8") == TEXTS[name]


def declared_tables() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Each mapping of a dialect's module whose values are verdicts, by its module and name."""
    for module in pkgutil.iter_modules(dialects.__path__, "frontend.dialects."):
        for name, value in vars(importlib.import_module(module.name)).items():
            rules = list(cast(Mapping[Any, object], value).values()) if isinstance(value, Mapping) else []
            if rules and all(isinstance(rule, get_args(FieldRule)) for rule in rules):
                yield f"{module.name}.{name}", value


def test_every_table_of_verdicts_is_in_the_golden() -> None:
    """Whole, or as the part that other tables share."""
    shown = [{name: id(rule) for name, rule in table.items()}.items() for table in TABLES.values()]
    hidden = [
        place
        for place, table in declared_tables()
        if not any({name: id(rule) for name, rule in table.items()}.items() <= items for items in shown)
    ]
    assert hidden == []


def test_no_transcript_is_left_over() -> None:
    """Each file in goldens/sse is made by the regen command."""
    assert {f"sse/{path.name}" for path in (GOLDENS / "sse").iterdir()} == {
        name for name in TEXTS if name.startswith("sse/")
    }
