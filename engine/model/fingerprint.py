"""What computes a model's replies, as one short name: the same request with the same seed may differ once it does.

Owns what goes into it: versions, device, arithmetic, files. What frontends make of text is not in it.
"""

import hashlib
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from engine.model.load import LoadedModel
from engine.settings import Settings

_LENGTH: Final = 12


def fingerprint(loaded: LoadedModel, settings: Settings) -> str:
    """As OpenAI's `system_fingerprint` looks. Weights count by their names and sizes: reading them takes too long."""
    digest = hashlib.sha256()
    for part in (*_machine(), *_arithmetic(loaded, settings), *_files(loaded.path)):
        digest.update(part.encode() + b"\0")
    return f"fp_{digest.hexdigest()[:_LENGTH]}"


def _machine() -> Iterator[str]:
    yield from (version("mlx-convoy"), version("mlx-lm"), version("mlx"), platform.platform())


def _arithmetic(loaded: LoadedModel, settings: Settings) -> Iterator[str]:
    yield from (loaded.device, loaded.dtype)
    quantized = (settings.kv_bits, settings.kv_group_size, settings.quantized_kv_start, settings.kv_scheme)
    yield from map(str, quantized)
    yield str(settings.adapter_path)


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.safetensors")):
        yield f"{path.name} {path.stat().st_size}"
    config = folder / "config.json"
    yield hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else ""
