"""mlx_lm.server's flags that are refused here.

Owns the words; the flags themselves are ServeSettings' like all others.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.ctl.failure import EXIT_USAGE, CommandError

# Each would change the output, or is asked for by name.
_REFUSED: Final[Mapping[str, str]] = {
    "pipeline": "one engine uses one machine: leave it out",
}


def check_flags(settings: msgspec.Struct) -> None:
    """Raises CommandError that names a flag which cannot be honoured, its value and what to do."""
    for name, why in _given(settings, _REFUSED).items():
        raise CommandError(f"{_spelt(settings, name)}: {why}", EXIT_USAGE)


def _given(settings: msgspec.Struct, table: Mapping[str, str]) -> dict[str, str]:
    # 0 is a value that somebody gave.
    values = {name: getattr(settings, name) for name in table}
    return {name: table[name] for name, value in values.items() if value is not None and value is not False}


def _spelt(settings: msgspec.Struct, name: str) -> str:
    value: Any = getattr(settings, name)
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"
