"""The draft model of speculative decoding: loaded beside the served one, and both proved fit for it at start.

Owns the refusals; how guesses are made and checked is engine/speculate.py's.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import msgspec
from mlx import nn
from mlx_lm.models.cache import can_trim_prompt_cache, make_prompt_cache

from engine.errors import EngineError
from engine.model.load import LoadedModel, find_model, load_model
from engine.model.tokenizer_files import TOKENIZER_NAME
from engine.settings import Settings
from protocol.errors import ErrorCode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DraftModel:
    """vocabulary_size: tokens that both it and the served model know."""

    id: str
    model: nn.Module
    vocabulary_size: int
    weights_bytes: int = 0


def load_draft(settings: Settings, served: LoadedModel) -> DraftModel | None:
    """None without --draft-model. Raises EngineError: BAD_MODEL, or BAD_SETTING when one of the two is unfit."""
    if settings.draft_model is None:
        return None
    path = find_model(settings.draft_model)
    if settings.quantized_kv_start:
        raise _unfit(settings, f"it does not go with --quantized-kv-start {settings.quantized_kv_start}")
    loaded = load_model(msgspec.structs.replace(settings, model=settings.draft_model), path)
    for role, model in (("the served model", served.model), ("it", loaded.model)):
        if not _can_trim(model):
            raise _unfit(settings, f"{role} keeps state that cannot be taken back ({_type_of(model)})")
    if not _share_tokens(served.path, path):
        log.warning("draft.other_tokenizer", extra={"draft": str(path), "cost": "few of its guesses will be right"})
    shared_tokens = min(_vocabulary_size(loaded.model), _vocabulary_size(served.model))
    return DraftModel(settings.draft_model, loaded.model, shared_tokens, loaded.weights_bytes)


def _can_trim(model: nn.Module) -> bool:
    caches = make_prompt_cache(model)
    model(mx.array([[3, 4]], dtype=mx.uint32), cache=caches)
    return can_trim_prompt_cache(caches)


def _vocabulary_size(model: nn.Module) -> int:
    return model(mx.array([[3]], dtype=mx.uint32), cache=make_prompt_cache(model)).shape[-1]


def _share_tokens(one: Path, other: Path) -> bool:
    contents = [path / TOKENIZER_NAME for path in (one, other)]
    return all(path.is_file() for path in contents) and contents[0].read_bytes() == contents[1].read_bytes()


def _type_of(model: nn.Module) -> str:
    return getattr(getattr(model, "args", None), "model_type", None) or type(model).__name__


def _unfit(settings: Settings, why: str) -> EngineError:
    return EngineError(ErrorCode.BAD_SETTING, f"--draft-model {settings.draft_model}: {why}; leave it out")
