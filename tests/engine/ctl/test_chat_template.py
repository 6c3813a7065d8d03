"""Which model folders have a chat template."""

import json
from pathlib import Path

import pytest

from engine.ctl.chat_template import has_chat_template


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("chat_template.jinja", "{{ messages }}", True),
        ("tokenizer_config.json", json.dumps({"chat_template": "{{ messages }}"}), True),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": "default", "template": "x"}]}), True),
        ("chat_template.json", json.dumps({"chat_template": "{{ messages }}"}), True),
        ("tokenizer_config.json", json.dumps({"chat_template": None}), False),
        ("tokenizer_config.json", json.dumps({"eos_token": "</s>"}), False),
        ("tokenizer_config.json", "{", False),
        ("tokenizer_config.json", "[]", False),
        ("config.json", json.dumps({"chat_template": "{{ messages }}"}), False),
    ],
)
def test_a_template_is_found_where_frontends_look(tmp_path: Path, name: str, content: str, expected: bool) -> None:
    """In a file of its own, or in a config's field; a broken file has none."""
    (tmp_path / name).write_text(content)
    assert has_chat_template(tmp_path) == expected


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    """Nor does one that is not there."""
    assert not has_chat_template(tmp_path)
    assert not has_chat_template(tmp_path / "none")
