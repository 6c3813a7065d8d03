"""What every dialect makes of a request body, and what it may say of a stream: the core all dialects share."""

from dataclasses import dataclass, field
from typing import Any, Literal

from protocol.messages import Grammar, Usage
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


@dataclass(frozen=True, slots=True)
class AskedLogprobs:
    """top: alternatives for each token. has_ids: tokens are spelled `token_id:5`, as vLLM can."""

    top: int = 0
    has_ids: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the reply's text must fit. field: where the client put it, for errors."""

    field: str
    grammar: Grammar


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request as the core sees it. choices: answers to each prompt. ignored: unknown fields, by name.

    best_of: rows of each prompt, of which the likeliest are the choices. has_echo: the prompt comes before the text.
    max_tokens: 0 with has_echo only.
    """

    model: str | None
    prompts: tuple[Prompt, ...]
    sampling: AskedSampling = AskedSampling()
    choices: int = 1
    best_of: int | None = None
    logprobs: AskedLogprobs | None = None
    has_echo: bool = False
    max_tokens: int | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    constraint: Constraint | None = None
    timeout_s: float | None = None
    is_stream: bool = False
    include_usage: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def rows_per_prompt(self) -> int:
        """How many rows the engine runs for each prompt."""
        return self.choices if self.best_of is None else self.best_of

    @property
    def is_echo_only(self) -> bool:
        """Whether the prompt alone is wanted back."""
        return self.max_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyFacts:
    """What every frame of one reply repeats. created: Unix seconds. logprobs: as asked."""

    id: str
    model: str
    created: int
    logprobs: AskedLogprobs | None = None


@dataclass(frozen=True, slots=True)
class TokenChance:
    """A token and its log-probability; None for the first of a prompt. data: exact bytes, perhaps half a character."""

    id: int
    data: bytes
    logprob: float | None


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """One token of a choice. alternatives: most likely first. start: where it begins in the text, in characters."""

    token: TokenChance
    alternatives: tuple[TokenChance, ...]
    start: int


@dataclass(frozen=True, slots=True)
class ChoiceStarted:
    """First event of a choice."""

    choice: int


@dataclass(frozen=True, slots=True)
class ChoiceText:
    """Text that a choice gained, and the entries of the tokens that are told with it, if asked; not both are empty.

    is_prompt: it is the prompt's, repeated.
    """

    choice: int
    text: str
    entries: tuple[TokenEntry, ...] = ()
    is_prompt: bool = False


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
    """A choice collected for a reply that is not streamed. prompt_entries: how many of the entries are the prompt's."""

    choice: int
    text_parts: list[str] = field(default_factory=list[str])
    reason: FinishWord = "stop"
    entries: list[TokenEntry] = field(default_factory=list[TokenEntry])
    prompt_entries: int = 0

    def add(self, gained: ChoiceText) -> None:
        """Takes an event over."""
        self.text_parts.append(gained.text)
        self.entries += gained.entries
        if gained.is_prompt:
            self.prompt_entries += len(gained.entries)

    @property
    def text(self) -> str:
        """All text of the choice."""
        return "".join(self.text_parts)
