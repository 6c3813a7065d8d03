"""Every tool-call and reasoning format by name, in the order they are asked, and which of them a template is in.

A format is registered here under its file's name; a second one of a name, or two that claim one template, is an error.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from frontend.parsers.base import ReasoningFormat, ToolFormat
from frontend.parsers.reasoning.apertus import APERTUS as APERTUS_REASONING
from frontend.parsers.reasoning.cohere_command import COHERE_COMMAND as COHERE_COMMAND_REASONING
from frontend.parsers.reasoning.gemma4 import GEMMA4 as GEMMA4_REASONING
from frontend.parsers.reasoning.granite import GRANITE as GRANITE_REASONING
from frontend.parsers.reasoning.harmony import HARMONY as HARMONY_REASONING
from frontend.parsers.reasoning.kimi import KIMI as KIMI_REASONING
from frontend.parsers.reasoning.kimi_k3 import KIMI_K3 as KIMI_K3_REASONING
from frontend.parsers.reasoning.longcat import LONGCAT as LONGCAT_REASONING
from frontend.parsers.reasoning.minicpm import MINICPM as MINICPM_REASONING
from frontend.parsers.reasoning.mistral import MISTRAL as MISTRAL_REASONING
from frontend.parsers.reasoning.muse_spark import MUSE_SPARK as MUSE_SPARK_REASONING
from frontend.parsers.reasoning.seed import SEED as SEED_REASONING
from frontend.parsers.reasoning.solar import SOLAR as SOLAR_REASONING
from frontend.parsers.reasoning.think import THINK
from frontend.parsers.tools.apertus import APERTUS
from frontend.parsers.tools.cohere_command import COHERE_COMMAND
from frontend.parsers.tools.deepseek_v3 import DEEPSEEK_V3
from frontend.parsers.tools.deepseek_v31 import DEEPSEEK_V31
from frontend.parsers.tools.deepseek_v32 import DEEPSEEK_V32
from frontend.parsers.tools.function_gemma import FUNCTION_GEMMA
from frontend.parsers.tools.gemma4 import GEMMA4
from frontend.parsers.tools.glm45 import GLM45
from frontend.parsers.tools.glm47 import GLM47
from frontend.parsers.tools.granite import GRANITE
from frontend.parsers.tools.harmony import HARMONY
from frontend.parsers.tools.hermes import HERMES
from frontend.parsers.tools.hunyuan_a13b import HUNYUAN_A13B
from frontend.parsers.tools.kimi_k2 import KIMI_K2
from frontend.parsers.tools.kimi_k3 import KIMI_K3
from frontend.parsers.tools.lfm2 import LFM2
from frontend.parsers.tools.llama3_json import LLAMA3_JSON
from frontend.parsers.tools.longcat import LONGCAT
from frontend.parsers.tools.minicpm import MINICPM
from frontend.parsers.tools.minicpm5 import MINICPM5
from frontend.parsers.tools.minimax_m2 import MINIMAX_M2
from frontend.parsers.tools.mistral import MISTRAL
from frontend.parsers.tools.muse_spark import MUSE_SPARK
from frontend.parsers.tools.nemotron import NEMOTRON
from frontend.parsers.tools.olmo3 import OLMO3
from frontend.parsers.tools.phi4_mini import PHI4_MINI
from frontend.parsers.tools.pythonic import PYTHONIC
from frontend.parsers.tools.qwen3_coder import QWEN3_CODER
from frontend.parsers.tools.seed_oss import SEED_OSS
from frontend.parsers.tools.solar import SOLAR
from protocol.errors import ErrorCode, ProtocolError

NONE: Final = "none"

_Format = TypeVar("_Format", ToolFormat, ReasoningFormat)


def _by_name(formats: Sequence[_Format]) -> dict[str, _Format]:
    named = {found.name: found for found in formats}
    if len(named) != len(formats) or NONE in named:
        raise ValueError(f"a parser's name is taken twice: {', '.join(found.name for found in formats)}")
    return named


TOOL_FORMATS: Final[Mapping[str, ToolFormat]] = _by_name(
    (
        HERMES,
        APERTUS,
        COHERE_COMMAND,
        DEEPSEEK_V3,
        DEEPSEEK_V31,
        DEEPSEEK_V32,
        FUNCTION_GEMMA,
        GEMMA4,
        GLM45,
        GLM47,
        GRANITE,
        HARMONY,
        HUNYUAN_A13B,
        KIMI_K2,
        KIMI_K3,
        LFM2,
        LLAMA3_JSON,
        LONGCAT,
        MINICPM,
        MINICPM5,
        MINIMAX_M2,
        MISTRAL,
        MUSE_SPARK,
        NEMOTRON,
        OLMO3,
        PHI4_MINI,
        PYTHONIC,
        QWEN3_CODER,
        SEED_OSS,
        SOLAR,
    )
)
REASONING_FORMATS: Final[Mapping[str, ReasoningFormat]] = _by_name(
    (
        THINK,
        APERTUS_REASONING,
        COHERE_COMMAND_REASONING,
        GEMMA4_REASONING,
        GRANITE_REASONING,
        HARMONY_REASONING,
        KIMI_REASONING,
        KIMI_K3_REASONING,
        LONGCAT_REASONING,
        MINICPM_REASONING,
        MISTRAL_REASONING,
        MUSE_SPARK_REASONING,
        SEED_REASONING,
        SOLAR_REASONING,
    )
)


# Names of mlx-lm's parsers, which a tokenizer_config.json may carry as `tool_parser_type`, where ours are other ones:
# the formats that each of them reads, the one that is meant without a template that says more first.
_MLX_LM_PARSERS: Final[Mapping[str, tuple[str, ...]]] = {
    "glm47": ("glm47", "glm45"),
    "json_tools": ("hermes",),
    "laguna": ("glm47", "glm45"),
    "pythonic": ("lfm2",),
}


class ModelFormats(NamedTuple):
    """What a model's replies are read with; None: as text."""

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None


NO_FORMATS: Final = ModelFormats(None, None)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a model's files say of its replies. template: for chats with tools, plain: for others.

    tool_parser: mlx-lm's `tool_parser_type`, or a name of ours.
    """

    template: str | None
    plain: str | None = None
    tool_parser: str | None = None

    @property
    def readable(self) -> tuple[str, ...]:
        """The formats that tool_parser means; none where it is not known here."""
        if self.tool_parser is None:
            return ()
        names = _MLX_LM_PARSERS.get(self.tool_parser, (self.tool_parser,))
        return tuple(name for name in names if name in TOOL_FORMATS)


def formats_of(declared: Declared, tool_parser: str | None = None, reasoning_parser: str | None = None) -> ModelFormats:
    """The formats that were named, else those that the model declares. Raises ProtocolError(BAD_SETTING)."""
    of_plain = _chosen(REASONING_FORMATS, declared.plain, reasoning_parser, "--reasoning-parser")
    return ModelFormats(
        _tool_format(declared, tool_parser),
        of_plain or _chosen(REASONING_FORMATS, declared.template, reasoning_parser, "--reasoning-parser"),
    )


def check_parser(name: str | None, names: Collection[str], flag: str) -> None:
    """Raises ProtocolError(BAD_SETTING), which lists the names, for one that there is not."""
    if name is not None and name != NONE and name not in names:
        raise ProtocolError(
            ErrorCode.BAD_SETTING, f"{flag} {name}: there is no such parser; take {NONE} or one of {', '.join(names)}"
        )


def _tool_format(declared: Declared, name: str | None) -> ToolFormat | None:
    """A declared one wins over what the template looks like; of several that it may mean the template chooses."""
    if name is not None or not declared.readable:
        return _chosen(TOOL_FORMATS, declared.template, name, "--tool-parser")
    meant = [TOOL_FORMATS[each] for each in declared.readable]
    template = declared.template
    return next((found for found in meant if template is not None and found.claims(template)), meant[0])


def _chosen(formats: Mapping[str, _Format], template: str | None, name: str | None, flag: str) -> _Format | None:
    if name is not None:
        check_parser(name, tuple(formats), flag)
        return formats.get(name)
    claiming = [found for found in formats.values() if template is not None and found.claims(template)]
    if len(claiming) > 1:
        names = " and ".join(found.name for found in claiming)
        raise ProtocolError(ErrorCode.BAD_SETTING, f"the chat template is claimed by {names}: choose one with {flag}")
    return claiming[0] if claiming else None
