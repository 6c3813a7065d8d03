"""What only the engine knows of its model, as the handshake tells it: names, limits, EOS, BOS, defaults.

Reads the model's small JSON files and checks what it finds there; loads nothing onto the device.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from mlx import nn

from engine.errors import EngineError
from engine.model.fingerprint import fingerprint
from engine.model.load import LoadedModel, is_hugging_face_id
from engine.model.tokenizer_files import CONFIG_NAME, TokenizerFiles
from engine.model.tokenizer_json import TokenizerJson
from engine.settings import Settings
from protocol.codec import MAX_FRAME_BYTES
from protocol.errors import ErrorCode
from protocol.messages import Batching, BosRule, GenerationDefaults, Limits, ModelFacts
from protocol.sampling import Sampling

# What mlx_lm.server takes for "the model given on the command line".
DEFAULT_MODEL_ALIAS: Final = "default_model"
# For a model that names no limit, such as a state-space model.
FALLBACK_CONTEXT_TOKENS: Final = 32_768
_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
    "model_max_length",
)
_NESTED_KEYS: Final = ("text_config", "language_config", "llm_config")
# tokenizer_config.json writes "no limit" as 1e30.
_UNLIMITED_TOKENS: Final = 10**9

log = logging.getLogger(__name__)


def model_facts(
    loaded: LoadedModel,
    tokenizer: TokenizerFiles,
    settings: Settings,
    batching: Batching,
    honoured: tuple[str, ...],
) -> ModelFacts:
    """Everything a client needs to know. honoured: the Sampling fields the engine's sampler obeys.

    Raises EngineError(BAD_MODEL) for a broken file, EngineError(BAD_SETTING) for a context over the model's own.
    """
    configs = _Configs(loaded.path, tokenizer)
    tokens = tokenizer.tokenizer_json()
    name = model_name(settings, loaded.path)
    aliases = dict.fromkeys((*settings.served_model_name, settings.model, DEFAULT_MODEL_ALIAS))
    return ModelFacts(
        id=name,
        aliases=tuple(alias for alias in aliases if alias != name),
        path=str(loaded.path),
        context_length=_context_length(configs, loaded.model, settings),
        vocabulary_size=_vocabulary_size(configs, loaded.model),
        eos_ids=_eos_ids(configs, tokens),
        bos=_bos_rule(configs, tokens),
        defaults=_defaults(configs.generation),
        batching=batching,
        limits=Limits(
            max_rows=1 if batching.mode == "serial" else settings.max_rows,
            max_waiting=settings.max_waiting,
            max_frame_bytes=MAX_FRAME_BYTES,
        ),
        dtype=loaded.dtype,
        device=loaded.device,
        sampling=honoured,
        draft_model=settings.draft_model_id or settings.draft_model,
        created=_created(loaded.path),
        fingerprint=fingerprint(loaded, settings),
    )


def _created(folder: Path) -> int:
    """Since when the model is here: the same over restarts, and for all frontends."""
    config = folder / "config.json"
    return max(0, int(config.stat().st_mtime)) if config.is_file() else 0


def model_name(settings: Settings, folder: Path) -> str:
    """The id the model is served under, unless the user chose one: its Hugging Face id, or its folder's name."""
    if settings.model_id is not None:
        return settings.model_id
    return settings.model if is_hugging_face_id(settings.model) else folder.name


class _Configs:
    """The JSON files beside the weights: foreign, each value narrowed where it is read."""

    def __init__(self, folder: Path, tokenizer: TokenizerFiles) -> None:
        self.model = _object(_content(folder / "config.json"), "config.json")
        self.generation = _object(_content(folder / "generation_config.json"), "generation_config.json")
        self.tokenizer = _object(tokenizer.content(CONFIG_NAME), CONFIG_NAME)

    @property
    def levels(self) -> Iterable[Mapping[str, Any]]:
        """config.json itself, then the part of it that describes the language model."""
        yield self.model
        for key in _NESTED_KEYS:
            if isinstance(nested := self.model.get(key), dict):
                yield nested


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _object(content: bytes | None, name: str) -> Mapping[str, Any]:
    """A file's JSON object; a missing file is an empty one."""
    if content is None:
        return {}
    try:
        found = json.loads(content)
    except ValueError as error:
        raise EngineError(ErrorCode.BAD_MODEL, f"{name} of the model is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise EngineError(ErrorCode.BAD_MODEL, f"{name} of the model is not a JSON object")
    return found


def _context_length(configs: _Configs, model: nn.Module, settings: Settings) -> int:
    own = _own_context_length(configs, model)
    if own is None:
        chosen = settings.context_length or FALLBACK_CONTEXT_TOKENS
        log.warning("model.context_unknown", extra={"context_length": chosen, "change_with": "--context-length"})
        return chosen
    if settings.context_length is not None and settings.context_length > own:
        raise EngineError(
            ErrorCode.BAD_SETTING,
            f"--context-length {settings.context_length} is over the model's own {own}; leave it out or lower it",
            param="context_length",
        )
    return settings.context_length or own


def _own_context_length(configs: _Configs, model: nn.Module) -> int | None:
    """In tokens; a default of mlx-lm's model counts when the files say nothing."""
    for level in configs.levels:
        found = _first_count(level, _CONTEXT_KEYS)
        if found is not None:
            return max(found, _yarn_length(level) or 0)
    found = _count(getattr(getattr(model, "args", None), "max_position_embeddings", None))
    return found or _first_count(configs.tokenizer, ("model_max_length",))


def _yarn_length(level: Mapping[str, Any]) -> int | None:
    """YaRN stretches an original length by a factor, which max_position_embeddings may or may not include.

    Every other scaling is included in it already.
    """
    scaling = level.get("rope_scaling") or level.get("rope_parameters")
    if not isinstance(scaling, dict) or scaling.get("rope_type", scaling.get("type")) not in ("yarn", "deepseek_yarn"):
        return None
    original, factor = _count(scaling.get("original_max_position_embeddings")), scaling.get("factor")
    return int(original * factor) if original and isinstance(factor, int | float) else None


def _vocabulary_size(configs: _Configs, model: nn.Module) -> int:
    for level in configs.levels:
        found = _first_count(level, ("vocab_size",))
        if found is not None:
            return found
    for _, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
            return module.weight.shape[0]
    raise EngineError(ErrorCode.BAD_MODEL, "config.json of the model names no vocab_size")


def _eos_ids(configs: _Configs, tokens: TokenizerJson) -> tuple[int, ...]:
    """Every id that any of the model's files calls an end, ascending."""
    ids = set(_ids(configs.generation.get("eos_token_id")))
    for level in configs.levels:
        ids.update(_ids(level.get("eos_token_id")))
    text = _token_text(configs.tokenizer.get("eos_token"))
    named = tokens.token_id(text) if text is not None else None
    if named is not None:
        ids.add(named)
    if not ids:
        log.warning("model.no_eos", extra={"effect": "rows end at max_tokens or a stop only"})
    return tuple(sorted(ids))


def _bos_rule(configs: _Configs, tokens: TokenizerJson) -> BosRule:
    """tokenizer.json alone decides whether raw text gets a BOS, as in transformers 5 and so in mlx-lm."""
    text = _token_text(configs.tokenizer.get("bos_token"))
    wanted = configs.tokenizer.get("add_bos_token")
    if text is None:
        return BosRule()
    if isinstance(wanted, bool) and wanted != tokens.starts_with(text):
        log.info("tokenizer.bos_by_file", extra={"add_bos_token": wanted, "file_adds": not wanted})
    return BosRule(id=tokens.token_id(text), add=None)


def _token_text(named: object) -> str | None:
    """The text of a token given as such, or as an object with a `content`."""
    text = named.get("content") if isinstance(named, dict) else named
    return text if isinstance(text, str) else None


def _defaults(generation: Mapping[str, Any]) -> GenerationDefaults:
    """What generation_config.json says and Sampling accepts; a value it does not accept is logged and left out."""
    found: dict[str, float | int] = {}
    for name in GenerationDefaults.__struct_fields__:
        value = generation.get(name)
        if value is None:
            continue
        try:
            found[name] = getattr(msgspec.convert({name: value}, type=Sampling), name)
        except msgspec.ValidationError as error:
            log.warning("model.bad_default", extra={"field": name, "value": value, "why": str(error)})
    if generation.get("do_sample") is False:
        found["temperature"] = 0.0
    return msgspec.convert(found, type=GenerationDefaults)


def _ids(value: object) -> list[int]:
    """Token ids given as one, as a list, or not at all."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool) and item >= 0]


def _first_count(level: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return next((count for name in names if (count := _count(level.get(name))) is not None), None)


def _count(value: object) -> int | None:
    """A positive number of tokens; anything else, also a stand-in for "no limit", is None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < _UNLIMITED_TOKENS else None
