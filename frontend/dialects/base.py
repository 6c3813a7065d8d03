"""What every dialect makes of a request body, and what it may say of a stream: the core all dialects share."""

from dataclasses import dataclass, field
from typing import Any, Literal

from protocol.messages import Usage
from protocol.sampling import TokenBias

FinishWord = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the chat template, normalised: plain dicts with role and text content.

    The two flags are arguments of ChatTemplate.render; with continue_final_message the reply goes on
    in the last message.
    """

    messages: tuple[dict[str, Any], ...]
    add_generation_prompt: bool = True
    continue_final_message: bool = False


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Raw text, tokenised with the tokenizer's special tokens."""

    text: str


@dataclass(frozen=True, slots=True)
class TokensPrompt:
    """Token ids as the client gave them."""

    ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokensPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSampling:
    """How to sample, as the client put it. None: not said, and the server or the model has a default.

    *_context: how many last tokens a penalty looks at.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repetition_context: int = 20
    presence_penalty: float = 0.0
    presence_context: int = 20
    frequency_penalty: float = 0.0
    frequency_context: int = 20
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: tuple[TokenBias, ...] = ()
    bad_words: tuple[str, ...] = ()
    allowed_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request as the core sees it. choices: rows of each prompt. ignored: unknown fields, by name."""

    model: str | None
    prompts: tuple[Prompt, ...]
    sampling: AskedSampling = AskedSampling()
    choices: int = 1
    max_tokens: int | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    timeout_s: float | None = None
    is_stream: bool = False
    include_usage: bool = False
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """What every frame of one reply repeats. created: Unix seconds."""

    id: str
    model: str
    created: int


@dataclass(frozen=True, slots=True)
class ChoiceStarted:
    """First event of a choice."""

    choice: int


@dataclass(frozen=True, slots=True)
class ChoiceText:
    """Text that a choice gained; never empty."""

    choice: int
    text: str


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """Last event of a choice, with the one finish reason."""

    choice: int
    reason: FinishWord


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """After the last choice. usage: summed over the choices, the prompt counted once per prompt."""

    usage: Usage


ReplyEvent = ChoiceStarted | ChoiceText | ChoiceFinished | ReplyFinished


@dataclass(slots=True)
class WholeChoice:
    """A choice collected for a reply that is not streamed."""

    choice: int
    text_parts: list[str] = field(default_factory=list[str])
    reason: FinishWord = "stop"

    @property
    def text(self) -> str:
        """All text of the choice."""
        return "".join(self.text_parts)
