"""The committed transcripts, error table and field tables are what the code makes today."""

import pytest

from tests.frontend.dialects.regen_dialects import GOLDENS, golden_texts

TEXTS = golden_texts()


@pytest.mark.parametrize("name", TEXTS)
def test_golden_is_unchanged(name: str) -> None:
    """Byte for byte, field order included."""
    assert (GOLDENS / name).read_text(encoding="utf-8") == TEXTS[name]


def test_no_transcript_is_left_over() -> None:
    """Each file in goldens/sse is made by the regen command."""
    assert {f"sse/{path.name}" for path in (GOLDENS / "sse").iterdir()} == {
        name for name in TEXTS if name.startswith("sse/")
    }
