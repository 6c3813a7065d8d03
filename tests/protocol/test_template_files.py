"""The plain names of template files, and the templates that they are of."""

import pytest

from protocol.template_files import template_file, template_name


@pytest.mark.parametrize("name", ["tool_use", "rag", "a.b", "default"])
def test_a_name_comes_back(name: str) -> None:
    """From the file that is called after it."""
    assert template_name(template_file(name)) == name


@pytest.mark.parametrize(
    ("file_name", "name"),
    [
        ("chat_template.jinja", "default"),
        ("chat_template.json", None),
        ("chat_template..jinja", None),
        ("tokenizer.json", None),
    ],
)
def test_only_template_files_have_a_name(file_name: str, name: str | None) -> None:
    """The default's, too."""
    assert template_name(file_name) == name
