"""How many bits each layer's keys and values are kept in: what the user chose, read and checked."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import Meta

from engine.errors import EngineError
from protocol.errors import ErrorCode

FILE_NAME: Final = "kv_config.json"
BITS: Final = (4, 8)
GROUP_SIZES: Final = (32, 64, 128)
DEFAULT_GROUP_SIZE: Final = 64
_NESTED_KEYS: Final = ("text_config", "language_config", "llm_config")


@dataclass(frozen=True, slots=True)
class LayerScheme:
    """bits: of one value. group_size: how many values share a scale and a bias."""

    bits: int
    group_size: int


@dataclass(frozen=True, slots=True)
class KvScheme:
    """layers: by the model's layer number; `every` holds for all that can be quantized. flag: what asked for it.

    start_tokens: rows shorter than this keep float caches.
    """

    flag: str
    every: LayerScheme | None = None
    layers: tuple[tuple[int, LayerScheme], ...] = ()
    start_tokens: int = 0


class _FileLayer(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of the file."""

    layer_idx: Annotated[int, Meta(ge=0)]
    bits: int
    group_size: int = DEFAULT_GROUP_SIZE


class KvSettings(Protocol):
    """The flags, of the engine or of `engine-ctl serve`."""

    @property
    def kv_bits(self) -> int | None:
        """Of every layer that can be quantized."""
        ...

    @property
    def kv_group_size(self) -> int | None:
        """With kv_bits."""
        ...

    @property
    def quantized_kv_start(self) -> int | None:
        """With kv_bits."""
        ...

    @property
    def kv_scheme(self) -> str | None:
        """`config`: bits per layer, from the model's folder."""
        ...


def read_scheme(settings: KvSettings, folder: Path) -> KvScheme | None:
    """What the settings ask for; None: nothing is quantized. Loads no model.

    Raises EngineError(BAD_SETTING) naming the flag, or the file's layer.
    """
    if settings.kv_scheme is None:
        return flags_scheme(settings)
    flags_scheme(settings)
    return KvScheme("--kv-scheme", layers=_file_layers(folder, layer_count(folder)))


def flags_scheme(settings: KvSettings) -> KvScheme | None:
    """What the flags ask for without a file. Raises EngineError(BAD_SETTING) for those that do not go together."""
    if settings.kv_bits is not None and settings.kv_scheme is not None:
        raise _refused("--kv-bits and --kv-scheme exclude each other; leave one out")
    if settings.kv_bits is None:
        for name in ("kv_group_size", "quantized_kv_start"):
            if getattr(settings, name) is not None:
                raise _refused(f"--{name.replace('_', '-')} needs --kv-bits", name)
        return None
    layer = LayerScheme(settings.kv_bits, settings.kv_group_size or DEFAULT_GROUP_SIZE)
    _check(layer, f"--kv-bits {layer.bits}", f"--kv-group-size {layer.group_size}")
    return KvScheme("--kv-bits", every=layer, start_tokens=settings.quantized_kv_start or 0)


def layer_count(folder: Path) -> int | None:
    """num_hidden_layers of config.json; None when it does not say, or is not there to be read."""
    try:
        config: Any = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict):
        return None
    levels = [config, *(config[key] for key in _NESTED_KEYS if isinstance(config.get(key), dict))]
    return next(
        (level["num_hidden_layers"] for level in levels if isinstance(level.get("num_hidden_layers"), int)), None
    )


def _file_layers(folder: Path, layer_count: int | None) -> tuple[tuple[int, LayerScheme], ...]:
    path = folder / FILE_NAME
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_FileLayer])
    except FileNotFoundError as error:
        raise _refused(f"--kv-scheme config: the model folder has no {FILE_NAME}") from error
    except OSError as error:
        raise _refused(f"--kv-scheme config: {FILE_NAME} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:  # also a ValidationError, which names the entry
        raise _refused(
            f"--kv-scheme config: {FILE_NAME} is not a list of layer_idx, bits and group_size: {error}"
        ) from error
    if not entries:
        raise _refused(f"--kv-scheme config: {FILE_NAME} names no layer")
    layers: dict[int, LayerScheme] = {}
    for entry in entries:
        where = f"{FILE_NAME}: layer {entry.layer_idx}"
        if entry.layer_idx in layers:
            raise _refused(f"{where} is named twice")
        if layer_count is not None and entry.layer_idx >= layer_count:
            raise _refused(f"{where} is missing: the model has layers 0 to {layer_count - 1}")
        layers[entry.layer_idx] = LayerScheme(entry.bits, entry.group_size)
        _check(layers[entry.layer_idx], where, where)
    return tuple(sorted(layers.items()))


def _check(layer: LayerScheme, bits_from: str, group_from: str) -> None:
    if layer.bits not in BITS:
        raise _refused(f"{bits_from}: {layer.bits} bits are not supported; take {' or '.join(map(str, BITS))}")
    if layer.group_size not in GROUP_SIZES:
        raise _refused(
            f"{group_from}: groups of {layer.group_size} are not supported; take {', '.join(map(str, GROUP_SIZES))}"
        )


def _refused(message: str, name: str | None = None) -> EngineError:
    return EngineError(ErrorCode.BAD_SETTING, message, param=name)
