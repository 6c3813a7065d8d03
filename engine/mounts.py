"""An operator's adapters: mounted at start and by Control, and kept in a small file over a crash of the engine.

Owns the file and the words of the commands; what an adapter is, is model/adapters.py's.
"""

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from engine.errors import EngineError
from engine.model.adapters import Adapters, check_folder
from protocol.errors import ErrorCode
from protocol.messages import Control

FILE_NAME: Final = "mounts.json"
MAX_NAME_LENGTH: Final = 128

log = logging.getLogger(__name__)


class Mounts(msgspec.Struct, frozen=True, kw_only=True):
    """The file: adapters' folders by name, for one model's folder."""

    model: str
    adapters: dict[str, str]


class Mounter:
    """Carries out mounting and unmounting, and notes what is mounted in a folder, if it has one. model: its folder."""

    def __init__(self, adapters: Adapters, folder: Path | None, model: str) -> None:
        self._adapters = adapters
        self._path = None if folder is None else folder / FILE_NAME
        self._model = model

    @staticmethod
    def check_flags(flags: Sequence[str]) -> None:
        """What is wrong with flags that can be seen before any weight is loaded. Raises EngineError(BAD_SETTING)."""
        names: set[str] = set()
        for flag in flags:
            named = _parsed(flag)
            if named.name in names:
                raise EngineError(ErrorCode.BAD_SETTING, f"--adapter {flag}: another one has that name; rename it")
            names.add(named.name)
            check_folder(named.path)

    def mount_all(self, flags: Sequence[str], *, is_restart: bool) -> None:
        """Mounts `NAME=FOLDER` of each flag and, after a crash, what was mounted since. Raises EngineError for a flag.

        An adapter from the file that cannot be read any more is left out, and that is logged.
        """
        for flag in flags:
            self._mount(flag)
        for name, path in self._noted().items() if is_restart else ():
            if name in self._adapters.names:
                continue
            try:
                self._adapters.mount(name, Path(path))
            except EngineError as error:
                log.warning("adapter.lost", extra={"adapter": name, "reason": error.message})
        self._note()

    def obey(self, control: Control) -> None:
        """One operator's command. Raises EngineError; nothing is changed then."""
        match control.command:
            case "mount_adapter":
                self._mount(control.argument)
            case "unmount_adapter":
                self._adapters.unmount(control.argument)
            case "flush_prefixes":
                raise AssertionError("prefixes are not the mounter's")
        self._note()

    def _mount(self, text: str) -> None:
        named = _parsed(text)
        self._adapters.mount(named.name, named.path)

    def _noted(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            noted = msgspec.json.decode(self._path.read_bytes(), type=Mounts)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.warning("adapter.notes_unreadable", extra={"path": str(self._path), "reason": str(error)})
            return {}
        return noted.adapters if noted.model == self._model else {}

    def _note(self) -> None:
        """In one step: a crash leaves the old file or the new one."""
        if self._path is None:
            return
        paths = {name: str(path) for name, path in self._adapters.paths.items()}
        if not paths:
            self._path.unlink(missing_ok=True)
            return
        descriptor, name = tempfile.mkstemp(prefix=".mounts.", dir=self._path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(Mounts(model=self._model, adapters=paths)))
        Path(name).replace(self._path)


class _Named(NamedTuple):
    name: str
    path: Path


def _parsed(text: str) -> _Named:
    name, equals, path = text.partition("=")
    is_sane = 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable() and "/" not in name and name != "*"
    if not equals or not path or not is_sane:
        raise EngineError(
            ErrorCode.BAD_SETTING, f"--adapter {text}: write NAME=FOLDER, with a name without `/` and `=`"
        )
    return _Named(name, Path(path).expanduser().absolute())
