"""What the operator has chosen about chat templates: read and checked once, at start."""

from pathlib import Path
from typing import Any, Final

import msgspec

from frontend.settings import Settings
from frontend.text.template import TemplateChoice, compile_error
from protocol.errors import ErrorCode, ProtocolError
from protocol.settings import is_template

_SET_BY_REQUESTS: Final = ("messages", "add_generation_prompt")


def template_choice(settings: Settings) -> TemplateChoice:
    """Raises ProtocolError(BAD_SETTING) with the option, its value and what is wrong with it."""
    source = None if settings.chat_template is None else _source(settings.chat_template)
    return TemplateChoice(source, _variables(settings.chat_template_args), settings.use_default_chat_template)


def _source(given: str) -> str:
    """As it is, or from a file."""
    source = given
    shown = f"--chat-template {given[:80]}"
    if not is_template(given):
        try:
            source = Path(given).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise _refused(f"{shown}: cannot be read: {reason}") from error
    reason = compile_error(source)
    if reason is not None:
        raise _refused(f"{shown}: does not compile: {reason}")
    return source


def _variables(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        variables = msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _refused(f"--chat-template-args {given}: not a JSON object: {error}") from error
    for name in _SET_BY_REQUESTS:
        if name in variables:
            raise _refused(f"--chat-template-args {given}: `{name}` comes from each request; leave it out")
    return variables


def _refused(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.BAD_SETTING, message)
