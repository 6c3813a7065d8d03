"""What every dialect makes of a request body, and what it may say of a stream: the core all dialects share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from protocol.messages import Grammar, Usage
from protocol.sampling import TokenBias

FinishWord = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call. parameters: JSON schema of its arguments, None for any object."""

    name: str
    description: str | None = None
    parameters: Mapping[str, object] | None = None
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class NamedTool:
    """The choice of one tool: it is called, once."""

    name: str


ToolChoice = Literal["none", "auto", "required"] | NamedTool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The tools of a request, at least one. is_parallel: several calls may follow each other."""

    tools: tuple[Tool, ...]
    choice: ToolChoice = "auto"
    is_parallel: bool = True


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the chat template, normalised: plain dicts with role and text content.

    The two flags are arguments of ChatTemplate.render; with continue_final_message the reply goes on
    in the last message. variables: further ones for the template. asked_by: the fields that set them, each with the
    variables it sets: a field has no effect on a model whose template reads none of them. param: where the client put
    the messages, for errors.
    """

    messages: tuple[dict[str, Any], ...]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    asked_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    param: str = "messages"


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
    max_tokens: 0 with has_echo only. tools: None when there are none to call. hides_reasoning: it is not shown.
    kept: what the dialect itself remembers of the request, for its reply.
    adapter: of those that are mounted, by name. draft_tokens: guesses of the draft model a step. priority: the lower,
    the earlier. cache_salt: prompts share what is computed of them with those of the same one alone.
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
    tools: ToolUse | None = None
    hides_reasoning: bool = False
    adapter: str | None = None
    draft_model: str | None = None
    draft_tokens: int | None = None
    priority: int = 0
    cache_salt: str | None = None
    timeout_s: float | None = None
    is_stream: bool = False
    include_usage: bool = False
    ignored: tuple[str, ...] = ()
    kept: msgspec.Struct | None = None

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
    """What the frames of one reply repeat. created: Unix seconds. logprobs: as asked. prompt_tokens: of all prompts.

    fingerprint: of what computes it, empty where that is not told.
    """

    id: str
    model: str
    created: int
    logprobs: AskedLogprobs | None = None
    prompt_tokens: int = 0
    fingerprint: str = ""


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
    """First event of a choice. cached_tokens: of its prompt that were not computed again."""

    choice: int
    cached_tokens: int = 0


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
class ChoiceReasoning:
    """Reasoning that a choice gained, without its markers; entries as in ChoiceText."""

    choice: int
    text: str
    entries: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A choice begins a call. call: 0 for the first of the choice, and so on. id: of this call alone."""

    choice: int
    call: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallArguments:
    """More of a call's arguments: the pieces joined are one JSON object. entries as in ChoiceText."""

    choice: int
    call: int
    text: str
    entries: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """The arguments of a call are whole; told before anything else of the choice follows."""

    choice: int
    call: int


@dataclass(frozen=True, slots=True)
class ToolCallBroken:
    """A call turned out to be none, and its arguments stay in pieces. text: all of it, as the model wrote it."""

    choice: int
    call: int
    text: str


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """Last event of a choice, with the one finish reason. stop: the stop string that ended it, if one did.

    reasoning_tokens: among those that the choice generated.
    """

    choice: int
    reason: FinishWord
    stop: str | None = None
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """After the last choice. usage: summed over the choices, the prompt counted once per prompt.

    reasoning_tokens: among those that all choices generated.
    """

    usage: Usage
    reasoning_tokens: int = 0


ReplyEvent = (
    ChoiceStarted
    | ChoiceText
    | ChoiceReasoning
    | ToolCallStarted
    | ToolCallArguments
    | ToolCallFinished
    | ToolCallBroken
    | ChoiceFinished
    | ReplyFinished
)


@dataclass(slots=True)
class WholeCall:
    """A call collected for a reply that is not streamed."""

    id: str
    name: str
    argument_parts: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        """One JSON object, as text."""
        return "".join(self.argument_parts)


@dataclass(slots=True)
class WholeChoice:
    """A choice collected for a reply that is not streamed. prompt_entries: how many of the entries are the prompt's.

    events: all of them in order, for dialects whose replies have parts in the order of a stream. A call that broke is
    text here, for nothing of it was told yet.
    """

    choice: int
    text_parts: list[str] = field(default_factory=list[str])
    reason: FinishWord = "stop"
    entries: list[TokenEntry] = field(default_factory=list[TokenEntry])
    prompt_entries: int = 0
    reasoning_parts: list[str] = field(default_factory=list[str])
    calls: list[WholeCall] = field(default_factory=list[WholeCall])
    stop: str | None = None
    reasoning_tokens: int = 0
    events: list[ReplyEvent] = field(default_factory=list[ReplyEvent])

    def add(self, event: ReplyEvent) -> None:
        """Takes an event of this choice over."""
        if isinstance(event, ToolCallBroken):
            self._take_call_back(event.text)
            return
        if isinstance(event, ChoiceFinished) and event.reason == "tool_calls" and not self.calls:
            event = replace(event, reason="stop")
        self.events.append(event)
        match event:
            case ChoiceText(text=text, entries=entries, is_prompt=is_prompt):
                self.text_parts.append(text)
                self.entries += entries
                self.prompt_entries += len(entries) if is_prompt else 0
            case ChoiceReasoning(text=text, entries=entries):
                self.reasoning_parts.append(text)
                self.entries += entries
            case ToolCallStarted(id=id_, name=name):
                self.calls.append(WholeCall(id_, name))
            case ToolCallArguments(text=text, entries=entries):
                self.calls[-1].argument_parts.append(text)
                self.entries += entries
            case ChoiceFinished(reason=reason, stop=stop, reasoning_tokens=reasoning_tokens):
                self.reason = reason
                self.stop = stop
                self.reasoning_tokens = reasoning_tokens
            case ChoiceStarted() | ToolCallFinished() | ReplyFinished():
                pass

    def _take_call_back(self, text: str) -> None:
        """The last call, and its events, as text."""
        self.calls.pop()
        self.text_parts.append(text)
        entries: list[TokenEntry] = []
        while not isinstance(event := self.events.pop(), ToolCallStarted):
            if isinstance(event, ToolCallArguments):
                entries[:0] = event.entries
        self.events.append(ChoiceText(self.choice, text, tuple(entries)))

    @property
    def text(self) -> str:
        """All text of the choice."""
        return "".join(self.text_parts)

    @property
    def reasoning(self) -> str:
        """All reasoning of the choice."""
        return "".join(self.reasoning_parts)
