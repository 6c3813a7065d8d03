"""From a folder or a Hugging Face id to an evaluated model on the device, or one clear error.

Owns where a model is found, its files' errors and the weights' dtype; knows no limits and no names.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import huggingface_hub
import mlx.core as mx
from huggingface_hub.errors import HfHubHTTPError
from mlx import nn
from mlx.utils import tree_flatten, tree_map_with_path
from mlx_lm.utils import dequantize_model
from mlx_lm.utils import load_model as load_mlx_lm_model

from engine.errors import EngineError
from engine.model.classes import model_classes
from engine.settings import Settings
from protocol.errors import ErrorCode
from protocol.settings import is_text

# One evaluation's share of the weights: bounds what is held twice, and how long a signal waits.
EVAL_BYTES: Final = 256 * 1024 * 1024
_HUGGING_FACE_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES: Final = ("*.json", "model*.safetensors", "*.py", "*.model", "*.tiktoken", "*.txt", "*.jinja")
_DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# mlx-lm checks nothing before it uses it: all that a wrong file makes it raise.
_LOAD_ERRORS: Final = (
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ImportError,
    RuntimeError,
    ArithmeticError,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """config: config.json as mlx-lm read it, foreign and unchecked. dtype: of most floating weights."""

    model: nn.Module
    config: Mapping[str, Any]
    path: Path
    dtype: str
    device: str
    weights_bytes: int


def load_model(
    settings: Settings, folder: Path, check: Callable[[nn.Module], object] = lambda _model: None
) -> LoadedModel:
    """Loads, casts and evaluates the weights in `folder`. Raises EngineError(BAD_MODEL).

    check: sees the model before any weight is read, and raises what it will not have.
    """
    device = device_name()
    model, config = _read(folder, settings.trust_remote_code)
    check(model)
    if settings.dtype == "auto" and device == "cpu":
        _dequantize(model)
        _cast(model, mx.float32)
    elif settings.dtype != "auto":
        _cast(model, _DTYPES[settings.dtype])
    _evaluate(model, folder)
    return LoadedModel(
        model=model,
        config=config,
        path=folder,
        dtype=_main_dtype(model),
        device=device,
        weights_bytes=sum(weight.nbytes for _, weight in _weights(model)),
    )


def find_model(model: str) -> Path:
    """The model's folder; a Hugging Face id is looked up in the local cache, then fetched.

    Anything that looks like a path is never looked up elsewhere. Raises EngineError(BAD_MODEL).
    """
    folder = Path(model).expanduser()
    if not is_text(str(folder.absolute())):
        raise EngineError(ErrorCode.BAD_MODEL, f"model folder {str(folder.absolute())!r}: its name is not UTF-8 text")
    if folder.is_dir():
        return folder.absolute()
    if folder.exists():
        raise EngineError(ErrorCode.BAD_MODEL, f"model {model} is a file; a folder or a Hugging Face id is needed")
    if not is_hugging_face_id(model):
        raise EngineError(ErrorCode.BAD_MODEL, f"model folder {model} does not exist")
    return _fetch(model)


def is_hugging_face_id(model: str) -> bool:
    """True for `org/name`, unless `org` is a folder here: then it is a mistyped path, not to be looked up."""
    return _HUGGING_FACE_ID.fullmatch(model) is not None and not Path(model).parent.is_dir()


def read_now(weights: list[mx.array]) -> None:
    """Reads lazily loaded weights from their file, which shows only now whether it is whole. Raises RuntimeError."""
    mx.eval(weights)


def device_name() -> str:
    """`metal`, `cuda` or `cpu`: where MLX computes by default."""
    if mx.default_device().type == mx.DeviceType.cpu:
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def _fetch(model_id: str) -> Path:
    """What the cache has is used as it is: a start must not depend on the network."""
    try:
        return Path(huggingface_hub.snapshot_download(model_id, local_files_only=True, allow_patterns=list(_FILES)))
    except (OSError, ValueError):
        log.info("model.fetch", extra={"model": model_id})
    try:
        return Path(huggingface_hub.snapshot_download(model_id, allow_patterns=list(_FILES)))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise EngineError(
            ErrorCode.BAD_MODEL,
            f"model {model_id} is not in the Hugging Face cache and cannot be fetched: {_line(error)}",
        ) from error


def _read(folder: Path, trust_remote_code: bool) -> tuple[nn.Module, Mapping[str, Any]]:
    """The model with lazy weights."""
    if not (folder / "config.json").is_file():
        raise EngineError(ErrorCode.BAD_MODEL, f"no config.json in {folder}: not a model folder")
    if not next(folder.glob("model*.safetensors"), None):
        raise EngineError(ErrorCode.BAD_MODEL, f"no weights in {folder}: model*.safetensors is missing")
    try:
        return load_mlx_lm_model(
            folder, lazy=True, get_model_classes=model_classes, trust_remote_code=trust_remote_code
        )
    except KeyError as error:
        raise EngineError(ErrorCode.BAD_MODEL, f"config.json of {folder} lacks {error}") from error
    except _LOAD_ERRORS as error:
        raise EngineError(ErrorCode.BAD_MODEL, f"model {folder} cannot be loaded: {_line(error)}") from error


def _dequantize(model: nn.Module) -> None:
    """Replaces quantized layers: on CPU their products run at a fraction of float32's speed.

    What mlx-lm cannot replace stays as it is, and that is said.
    """
    if any("global_scale" in module for _, module in model.named_modules()):
        log.warning("model.stays_quantized", extra={"reason": "its layers have global scales"})
        return
    dequantize_model(model)
    left = [name for name, module in model.named_modules() if "scales" in module and hasattr(module, "bits")]
    if left:
        log.warning("model.stays_quantized", extra={"layers": len(left), "first": left[0], "reason": "unknown kind"})


def _cast(model: nn.Module, dtype: mx.Dtype) -> None:
    """Lazily. Weights that a model keeps in float32 on purpose (its cast_predicate) are not narrowed."""
    may_cast: Callable[[str], bool] = getattr(model, "cast_predicate", lambda _name: True)

    def cast(name: str, weight: mx.array) -> mx.array:
        is_wanted = mx.issubdtype(weight.dtype, mx.floating) and (dtype == mx.float32 or may_cast(name))
        return weight.astype(dtype) if is_wanted else weight

    model.update(tree_map_with_path(cast, model.parameters()))


def _evaluate(model: nn.Module, folder: Path) -> None:
    """In groups of EVAL_BYTES, so that little more than one copy of the weights ever exists."""
    try:
        for group in _groups(model):
            mx.eval(group)
            mx.clear_cache()
    except (RuntimeError, ValueError) as error:
        raise EngineError(ErrorCode.BAD_MODEL, f"weights of {folder} cannot be read: {_line(error)}") from error


def _main_dtype(model: nn.Module) -> str:
    """Of most bytes among floating weights; in a quantized model the dtype of its scales."""
    sizes_bytes: Counter[str] = Counter()
    for _, weight in _weights(model):
        if mx.issubdtype(weight.dtype, mx.floating):
            sizes_bytes[str(weight.dtype).removeprefix("mlx.core.")] += weight.nbytes
    return max(sizes_bytes, key=sizes_bytes.__getitem__, default="none")


def _groups(model: nn.Module) -> Iterator[list[mx.array]]:
    group: list[mx.array] = []
    size_bytes = 0
    for _, weight in _weights(model):
        group.append(weight)
        size_bytes += weight.nbytes
        if size_bytes >= EVAL_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _weights(model: nn.Module) -> list[tuple[str, mx.array]]:
    flat: Any = tree_flatten(model.parameters())
    return flat


def _line(error: BaseException) -> str:
    """An error's text as one line of bounded length."""
    return " ".join(str(error).split())[:300] or type(error).__name__
