"""What an operator mounts: by flag and by command, kept over a crash, and not over anything else."""

from pathlib import Path

import pytest

from tests.fakes.models import fresh_model  # isort: skip  # before MLX

from engine.errors import EngineError
from engine.model.adapters import Adapters
from engine.mounts import FILE_NAME, Mounter
from protocol.messages import Control
from tests.fakes.adapters import build_adapter

MODEL = "/models/one"


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_adapter(tmp_path_factory.mktemp("adapters") / "a", "llama", 1)


def mounter(folder: Path, model: str = MODEL) -> Mounter:
    """Of an engine that has just started."""
    return Mounter(Adapters(fresh_model("llama")), folder, model)


def names(made: Mounter) -> tuple[str, ...]:
    return made._adapters.names


def test_a_restarted_engine_mounts_what_was_mounted(tmp_path: Path, adapter: Path) -> None:
    """Flags first, then the file; a fresh start has the flags only."""
    first = mounter(tmp_path)
    first.mount_all([f"flag={adapter}"], is_restart=False)
    first.obey(Control(epoch="e", id="1", command="mount_adapter", argument=f"hot={adapter}"))
    assert names(first) == ("flag", "hot")
    again = mounter(tmp_path)
    again.mount_all([f"flag={adapter}"], is_restart=True)
    assert names(again) == ("flag", "hot")
    fresh = mounter(tmp_path)
    fresh.mount_all([f"flag={adapter}"], is_restart=False)
    assert names(fresh) == ("flag",)


def test_what_was_unmounted_stays_so(tmp_path: Path, adapter: Path) -> None:
    """The file follows each command."""
    first = mounter(tmp_path)
    first.obey(Control(epoch="e", id="1", command="mount_adapter", argument=f"hot={adapter}"))
    first.obey(Control(epoch="e", id="2", command="unmount_adapter", argument="hot"))
    again = mounter(tmp_path)
    again.mount_all([], is_restart=True)
    assert names(again) == ()
    assert not (tmp_path / FILE_NAME).exists()


def test_another_models_or_lost_or_broken_notes_cost_no_start(tmp_path: Path, adapter: Path) -> None:
    """Each is left out; the engine comes up."""
    first = mounter(tmp_path)
    first.obey(Control(epoch="e", id="1", command="mount_adapter", argument=f"hot={adapter}"))
    other = mounter(tmp_path, "/models/two")
    other.mount_all([], is_restart=True)
    assert names(other) == ()
    (tmp_path / FILE_NAME).write_text('{"model": "/models/one", "adapters": {"gone": "/nowhere"}}')
    gone = mounter(tmp_path)
    gone.mount_all([], is_restart=True)
    assert names(gone) == ()
    (tmp_path / FILE_NAME).write_bytes(b"{")
    broken = mounter(tmp_path)
    broken.mount_all([], is_restart=True)
    assert names(broken) == ()


@pytest.mark.parametrize("flag", ["name", "=folder", "a/b=folder", "*=folder", "name=", "a\nb=folder"])
def test_a_flag_that_names_nothing_is_refused(tmp_path: Path, flag: str) -> None:
    """With the form that is wanted."""
    with pytest.raises(EngineError, match="NAME=FOLDER"):
        mounter(tmp_path).mount_all([flag], is_restart=False)


def test_flags_are_checked_before_weights_are_loaded(adapter: Path) -> None:
    """What can be seen without a model."""
    Mounter.check_flags([f"a={adapter}"])
    with pytest.raises(EngineError, match="there is no such folder"):
        Mounter.check_flags([f"a={adapter}", "b=/nowhere"])


def test_two_flags_of_one_name_are_refused(adapter: Path) -> None:
    """The last would silently have taken the place of the first."""
    with pytest.raises(EngineError, match="another one has that name"):
        Mounter.check_flags([f"a={adapter}", f"b={adapter}", f"a={adapter}"])
