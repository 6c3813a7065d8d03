"""Whether a model folder has a chat template: what `serve` shows a user to try depends on it."""

from pathlib import Path
from typing import Any, Final

import msgspec

_FILE: Final = "chat_template.jinja"
_CONFIGS: Final = ("tokenizer_config.json", "chat_template.json")


def has_chat_template(folder: Path) -> bool:
    """Looks where frontends do. A file that cannot be read has none: the engine will say what is wrong with it."""
    return (folder / _FILE).is_file() or any(_names_template(folder / name) for name in _CONFIGS)


def _names_template(path: Path) -> bool:
    try:
        return bool(msgspec.json.decode(path.read_bytes(), type=dict[str, Any]).get("chat_template"))
    except (OSError, msgspec.MsgspecError):
        return False
