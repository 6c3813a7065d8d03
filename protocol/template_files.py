"""What chat templates are called among a tokenizer's files: the default, and those with names of their own."""

from typing import Final

DEFAULT_TEMPLATE: Final = "default"
DEFAULT_TEMPLATE_FILE: Final = "chat_template.jinja"
_PREFIX: Final = "chat_template."
_SUFFIX: Final = ".jinja"


def template_file(name: str) -> str:
    """The plain file name of a template that models keep in a folder."""
    return f"{_PREFIX}{name}{_SUFFIX}"


def template_name(file_name: str) -> str | None:
    """The template that a file holds; None for a file of another kind."""
    if file_name == DEFAULT_TEMPLATE_FILE:
        return DEFAULT_TEMPLATE
    is_named = file_name.startswith(_PREFIX) and file_name.endswith(_SUFFIX)
    return file_name[len(_PREFIX) : -len(_SUFFIX)] or None if is_named else None
