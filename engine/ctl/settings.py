"""What `engine-ctl serve` can be told, by flags and by a TOML file; the field is the option."""

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from engine.cache.scheme import flags_scheme
from engine.ctl.failure import EXIT_USAGE, CommandError
from engine.ctl.mlx_lm_flags import check_flags
from engine.ctl.pull import DEFAULT_MODEL
from engine.errors import EngineError
from engine.settings import DtypeName, LogLevel
from engine.settings import Settings as EngineSettings
from protocol.endpoint import default_runtime_path
from protocol.messages import MAX_DRAFT_TOKENS
from protocol.setting_words import wrong_setting
from protocol.settings import (
    Origin,
    ReasoningParserOption,
    TemplateOption,
    TemplateVariablesOption,
    ToolParserOption,
    is_template,
)

# As mlx_lm.server has it: 4GB, 500M, or bytes. As vLLM has it: 4GiB.
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?((?:[mg](?:i?b)?)?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "m": 10**6, "mb": 10**6, "mib": 2**20, "g": 10**9, "gb": 10**9, "gib": 2**30}
_ENGINE_DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default for field in msgspec.structs.fields(EngineSettings)
}


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine and one frontend per port."""

    model: Annotated[
        str,
        Meta(min_length=1, description="model folder, Hugging Face id (owner/name) or short name (see `pull --list`)"),
    ] = DEFAULT_MODEL
    host: Annotated[str, Meta(min_length=1, description="address to listen on")] = "127.0.0.1"
    port: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=65_535)], ...],
        Meta(min_length=1, max_length=64, description="one frontend per port; repeatable; 0 takes a free one"),
    ] = (8080,)
    max_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="requests decoded together at most",
            extra={"aliases": ("--decode-concurrency",)},
        ),
    ] = _ENGINE_DEFAULTS["max_rows"]
    dtype: Annotated[DtypeName, Meta(description="of weights; auto: float32 on CPU, else the model's own")] = (
        _ENGINE_DEFAULTS["dtype"]
    )
    kv_bits: Annotated[int, Meta(description="bits of keys and values in the KV cache: 4 or 8")] | None = None
    kv_group_size: (
        Annotated[int, Meta(description="values that share a scale with --kv-bits: 32, 64 or 128; left out: 64")] | None
    ) = None
    quantized_kv_start: (
        Annotated[int, Meta(ge=0, description="with --kv-bits: tokens before which a row is not quantized")] | None
    ) = None
    kv_scheme: (
        Annotated[Literal["config"], Meta(description="config: bits per layer, from the model's kv_config.json")] | None
    ) = None
    adapter_path: (
        Annotated[str, Meta(min_length=1, description="folder of a LoRA adapter for requests that name none")] | None
    ) = None
    adapter: Annotated[
        tuple[Annotated[str, Meta(min_length=1)], ...],
        Meta(description="NAME=FOLDER: a LoRA adapter that requests may name; repeatable"),
    ] = ()
    runtime_dir: Annotated[str, Meta(min_length=1, description="folder for sockets, locks and state")] = msgspec.field(
        default_factory=lambda: str(default_runtime_path())
    )
    served_model_name: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...],
        Meta(description="another name the model answers to; repeatable; * takes any name"),
    ] = ()
    temp: Annotated[float, Meta(ge=0, le=100, description="temperature of requests that name none")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1, description="top_p of requests that name none; 1 is off")] | None = None
    top_k: Annotated[int, Meta(ge=0, description="top_k of requests that name none; 0 is off")] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1, description="min_p of requests that name none; 0 is off")] | None = None
    max_tokens: (
        Annotated[int, Meta(ge=1, description="max_tokens of requests that name none; left out: no limit")] | None
    ) = None
    api_key: Annotated[
        tuple[str, ...],
        Meta(
            description="a key that each request must show; repeatable; others see it in `ps`, so rather use the file"
        ),
    ] = ()
    api_key_file: (
        Annotated[str, Meta(min_length=1, description="file of such keys, one a line, read at the start")] | None
    ) = None
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(description="of web pages that may use this server, as http://localhost:3000; repeatable, or with commas"),
    ] = ()
    chat_template: TemplateOption | None = None
    chat_template_args: TemplateVariablesOption | None = None
    tool_parser: ToolParserOption | None = None
    reasoning_parser: ReasoningParserOption | None = None
    use_default_chat_template: Annotated[bool, Meta(description="ChatML, for a model without a template")] = False
    trust_remote_code: Annotated[bool, Meta(description="run Python code that comes with the model")] = False
    prefill_step_size: (
        Annotated[int, Meta(ge=1, le=65_536, description="prompt tokens in one chunk; left out: by device")] | None
    ) = None
    prompt_concurrency: (
        Annotated[int, Meta(ge=1, description="short prompts computed as one chunk at most; left out: what fits")]
        | None
    ) = None
    prompt_cache_size: (
        Annotated[int, Meta(ge=0, description="prompts kept for later ones at most; 0 keeps none; left out: what fits")]
        | None
    ) = None
    kv_cache_memory_bytes: (
        Annotated[
            str, Meta(description="memory for all requests' KV caches and kept prompts, as 4GB; left out: by device")
        ]
        | None
    ) = None
    prompt_cache_bytes: (
        Annotated[str, Meta(description="kept prompts take no more, as 1GB; left out: what requests leave")] | None
    ) = None
    draft_model: (
        Annotated[str, Meta(min_length=1, description="model whose guesses a lone greedy request takes")] | None
    ) = None
    num_draft_tokens: (
        Annotated[int, Meta(ge=0, le=MAX_DRAFT_TOKENS, description="guesses in a step with --draft-model; left out: 3")]
        | None
    ) = None
    pipeline: Annotated[bool, Meta(description="refused: one engine uses one machine")] = False
    max_body_bytes: Annotated[int, Meta(ge=1_024, le=2**31, description="largest request body")] = 16 * 1024 * 1024
    response_store_bytes: Annotated[
        int, Meta(ge=0, le=2**40, description="most that stored responses may take; 0 stores none")
    ] = 64 * 1024 * 1024
    response_ttl_s: Annotated[int, Meta(ge=1, description="seconds that a stored response is kept unused")] = 2_592_000
    log_level: Annotated[LogLevel, Meta(description="least level logged")] = _ENGINE_DEFAULTS["log_level"]


class _Origins(msgspec.Struct, frozen=True):
    """As the frontends take them: a file and a flag may have several in one text."""

    allowed_origins: tuple[Origin, ...]


def serve_settings(flags: dict[str, Any], config: Path | None) -> ServeSettings:
    """The file's values, overruled by the given flags. Raises CommandError naming the key or the option."""
    from_file = read_config(config) if config is not None else {}
    wrong = wrong_setting(ServeSettings, flags, strict=True)
    if wrong is not None:
        raise CommandError(wrong.of_option, EXIT_USAGE)
    settings = msgspec.convert({**from_file, **flags}, type=ServeSettings)
    check_flags(settings)
    _check_size("--kv-cache-memory-bytes", settings.kv_cache_memory_bytes)
    _check_size("--prompt-cache-bytes", settings.prompt_cache_bytes)
    _check_template(settings)
    settings = msgspec.structs.replace(settings, allowed_origins=_origins(settings.allowed_origins))
    try:
        flags_scheme(settings)
    except EngineError as error:
        raise CommandError(error.message, EXIT_USAGE) from error
    fixed = [port for port in settings.port if port]
    twice = next((port for port in fixed if fixed.count(port) > 1), None)
    if twice is not None:
        raise CommandError(f"--port {twice} is given twice; each frontend needs its own", EXIT_USAGE)
    return settings


def _check_size(flag: str, size: str | None) -> None:
    """Not by a pattern in the type, of which msgspec would say the expression."""
    if size is not None and not _SIZE.fullmatch(size):
        raise CommandError(
            f"{flag} {size}: a size is a number of bytes, or of M, MB, MiB, G, GB or GiB, as 4GB", EXIT_USAGE
        )


def _check_template(settings: ServeSettings) -> None:
    """What the frontends would refuse one by one, after the model is found."""
    template, variables = settings.chat_template, settings.chat_template_args
    if template is not None and not is_template(template) and not Path(template).expanduser().is_file():
        raise CommandError(f"--chat-template {template}: there is no such file, and it is no template", EXIT_USAGE)
    try:
        msgspec.json.decode(variables or "{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise CommandError(f"--chat-template-args {variables}: not a JSON object: {error}", EXIT_USAGE) from error


def _origins(given: tuple[str, ...]) -> tuple[str, ...]:
    origins = [origin.strip() for words in given for origin in words.split(",")]
    wrong = wrong_setting(_Origins, {"allowed_origins": origins}, strict=True)
    if wrong is not None:
        raise CommandError(wrong.of_option, EXIT_USAGE)
    return tuple(origins)


def size_bytes(size: str) -> int:
    """A size as --kv-cache-memory-bytes takes it, in bytes."""
    read = _SIZE.fullmatch(size)
    assert read is not None, "sizes are checked when they are read"
    number, unit = read.groups()
    return int(Decimal(number) * _UNITS[unit.lower()])


def read_config(path: Path) -> dict[str, Any]:
    """The file's values by field name; `max-rows` and `max_rows` are one key. Raises CommandError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandError(f"cannot read {path}: {reason}", EXIT_USAGE) from error
    hints = get_type_hints(ServeSettings)
    values: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in hints:
            known = ", ".join(sorted(hints))
            raise CommandError(f"{path}: unknown key {key!r}; known are: {known}", EXIT_USAGE)
        if name in values:
            raise CommandError(f"{path}: {key!r} is there twice", EXIT_USAGE)
        is_single = get_origin(hints[name]) is tuple and not isinstance(value, list)
        values[name] = [value] if is_single else value
    wrong = wrong_setting(ServeSettings, values, strict=True)
    if wrong is not None:
        raise CommandError(f"{path}: {wrong.of_key}", EXIT_USAGE)
    return values
