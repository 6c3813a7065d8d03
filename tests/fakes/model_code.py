"""Model folders that bring code of their own, which does what a broken device does."""

import json
import shutil
from pathlib import Path
from types import ModuleType

from bench.random_model import TINY_LLAMA, build_random_model


def build_model_with(code: ModuleType, folder: Path) -> Path:
    """A tiny model whose class is the module's; it loads with --trust-remote-code only."""
    build_random_model(folder, TINY_LLAMA)
    assert code.__file__ is not None
    name = Path(code.__file__).name
    shutil.copy(code.__file__, folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "model_file": name}), encoding="utf-8")
    return folder
