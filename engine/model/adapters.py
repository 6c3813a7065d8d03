"""LoRA adapters on one model: read, mounted by name, and put on and taken off between forwards.

A forward is a graph over the modules that are in the model while it is built, so groups of rows with different
adapters run one after the other in one step. Owns the mounted adapters; which row has which is the row's.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import load_adapters

from engine.errors import EngineError
from engine.model.load import read_now
from protocol.errors import ErrorCode

CONFIG_NAME: Final = "adapter_config.json"
WEIGHTS_NAME: Final = "adapters.safetensors"
# Of the one that rows have which name none; no request can name it.
DEFAULT_NAME: Final = ""
# mlx-lm checks nothing of a configuration before it uses it.
_READ_ERRORS: Final = (OSError, ValueError, TypeError, AttributeError, LookupError, RuntimeError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a module hangs in its parent, and the two that may hang there."""

    parent: Any
    key: str | int
    base: nn.Module
    adapted: nn.Module


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A mounted adapter. size_bytes: of its own weights; the model's are shared."""

    name: str
    path: Path
    places: tuple[_Place, ...]
    size_bytes: int


class Adapters:
    """A model and what is mounted on it. default: of rows that name none.

    forward: what is called in the model's place and calls it.
    """

    def __init__(self, model: nn.Module, default: Adapter | None = None, forward: Any = None) -> None:
        self._model = model
        self._forward = model if forward is None else forward
        self._default = default
        self._mounted: dict[str, Adapter] = {}
        self._on: Adapter | None = None
        self.model_for(default)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the mounted adapters, in the order of their mounting."""
        return tuple(self._mounted)

    @property
    def paths(self) -> Mapping[str, Path]:
        """Where each mounted adapter was read."""
        return {name: adapter.path for name, adapter in self._mounted.items()}

    def find(self, name: str | None) -> Adapter | None:
        """The adapter of a row that asks for `name`. Raises EngineError(MODEL_NOT_FOUND) with those mounted."""
        if name is None:
            return self._default
        adapter = self._mounted.get(name)
        if adapter is None:
            mounted = ", ".join(self._mounted) or "none"
            raise EngineError(
                ErrorCode.MODEL_NOT_FOUND, f"adapter {name} is not mounted; mounted: {mounted}", param="adapters"
            )
        return adapter

    def has(self, adapter: Adapter) -> bool:
        """Whether a row can still ask for this very adapter: another of its name is not the same."""
        return adapter is self._default or self._mounted.get(adapter.name) is adapter

    def mount(self, name: str, path: Path) -> Adapter:
        """Reads an adapter and gives it a name; it takes the place of one of the same name, whose rows keep theirs.

        Raises EngineError(BAD_SETTING); nothing is changed then.
        """
        adapter = read_adapter(self._model_without(), name, path)
        self._mounted[name] = adapter
        log.info("adapter.mounted", extra={"adapter": name, "path": str(path), "bytes": adapter.size_bytes})
        return adapter

    def unmount(self, name: str) -> None:
        """Forgets a name; rows that have the adapter keep it. Raises EngineError(MODEL_NOT_FOUND)."""
        self.find(name)
        del self._mounted[name]
        log.info("adapter.unmounted", extra={"adapter": name})

    def model_for(self, adapter: Adapter | None) -> Any:
        """The model with this adapter on it, until the next call."""
        if adapter is not self._on:
            self._model_without()
            for place in adapter.places if adapter is not None else ():
                _hang(place, place.adapted)
            self._on = adapter
        return self._forward

    def _model_without(self) -> nn.Module:
        for place in self._on.places if self._on is not None else ():
            _hang(place, place.base)
        self._on = None
        return self._model


def read_adapter(model: nn.Module, name: str, path: Path) -> Adapter:
    """Reads an adapter for a bare model, which stays bare. Raises EngineError(BAD_SETTING) naming the folder."""
    check_folder(path)
    bare = dict(model.named_modules())
    try:
        load_adapters(model, str(path))
        adapted = {at: module for at, module in model.named_modules() if at in bare and module is not bare[at]}
        own = _own_weights(adapted.values())
        read_now(own)
    except _READ_ERRORS as error:
        raise _bad(path, " ".join(f"{error}".split())[:300] or type(error).__name__) from error
    finally:
        changed = {at: module for at, module in model.named_modules() if at in bare and module is not bare[at]}
        for at in changed:
            parent, key = _parent(model, at)
            _set(parent, key, bare[at])
    if not adapted:
        raise _bad(path, "it changes no layer of this model")
    for module in adapted.values():
        module.eval()
    places = tuple(_Place(*_parent(model, at), bare[at], module) for at, module in adapted.items())
    return Adapter(name, path, places, sum(weight.nbytes for weight in own))


def check_folder(path: Path) -> None:
    """What can be known before any weight is read. Raises EngineError(BAD_SETTING) naming the folder."""
    if not path.is_dir():
        raise _bad(path, "there is no such folder")
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        if not (path / name).is_file():
            raise _bad(path, f"{name} is missing")
    try:
        config = json.loads((path / CONFIG_NAME).read_bytes())
    except ValueError as error:
        raise _bad(path, f"{CONFIG_NAME} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise _bad(path, f"{CONFIG_NAME} is not an object")
    if config.get("fine_tune_type", "lora") == "full":
        raise _bad(path, "it replaces the model's weights (fine_tune_type full): fuse it into a model of its own")


def _own_weights(modules: Iterable[nn.Module]) -> list[mx.array]:
    """The weights that a base module has not: mlx-lm keeps it inside the adapted one, as `linear` or `embedding`."""
    flat: list[Any] = [item for module in modules for item in tree_flatten(module.parameters()) if _is_own(item[0])]
    return [weight for _, weight in flat]


def _is_own(name: str) -> bool:
    return name.partition(".")[0] not in ("linear", "embedding")


def _parent(model: nn.Module, at: str) -> tuple[Any, str | int]:
    """The module, list or dict that holds the module at a dotted path, and its key there."""
    *above, last = at.split(".")
    parent: Any = model
    for part in above:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    return parent, int(last) if isinstance(parent, list) else last


def _hang(place: _Place, module: nn.Module) -> None:
    _set(place.parent, place.key, module)


def _set(parent: Any, key: str | int, module: nn.Module) -> None:
    # nn.Module is a dict of its children; lists hold layers and experts.
    parent[key] = module


def _bad(path: Path, why: str) -> EngineError:
    return EngineError(ErrorCode.BAD_SETTING, f"adapter {path} cannot be used: {why}")
