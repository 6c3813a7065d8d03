"""From a parsed request to its Submits: model name, prompt tokens, room in the context, seeds.

Pure functions; a long prompt's tokenising may run in a worker thread.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from frontend.dialects.base import ChatPrompt, Generation, Prompt, TextPrompt, TokensPrompt, ToolUse
from frontend.errors import PromptTooLongError, RequestError
from frontend.model_text import ModelText
from frontend.reply_form import rendered
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import Epoch, LogprobsWanted, ModelFacts, Submit, SubmitId, TokenPrompt
from protocol.sampling import Sampling

ANY_NAME = "*"
MAX_CHOICES: Final = 1_024
_COUNTED_CONTEXTS: Final = 4
_COUNTED_TOKENS: Final = 32_768
_SEED_BITS: Final = 63
_SEED_MASK: Final = 2**_SEED_BITS - 1
_LOW_WORD: Final = 2**32 - 1
_SEED_STEP: Final = 0x9E3779B9


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPlan:
    """What all choices of one request share. deadline_ms: from now. max_tokens: not yet clamped.

    snapshots: of each prompt, the lengths worth keeping; empty where the engine does not want to know.
    """

    reply_id: str
    epoch: Epoch
    facts: ModelFacts
    sampling: Sampling
    max_tokens: int | None
    deadline_ms: int | None
    snapshots: Sequence[tuple[int, ...]] = ()


def resolve_model(
    name: str | None, facts: ModelFacts, served_names: Sequence[str], adapters: Sequence[str] = ()
) -> str:
    """The name to answer with, an adapter's among them. Raises RequestError(MODEL_NOT_FOUND) naming what is served."""
    if name is None:
        return facts.id
    names = {facts.id, *facts.aliases, *served_names, *adapters}
    if name in names or ANY_NAME in names:
        return name
    served = ", ".join(f"`{known}`" for known in served_models(facts, served_names, adapters))
    raise RequestError(
        ErrorCode.MODEL_NOT_FOUND,
        f"the model `{name}` does not exist; this server serves {served}; "
        "started with `--served-model-name '*'` it takes any name",
        "model",
    )


def served_models(facts: ModelFacts, served_names: Sequence[str], adapters: Sequence[str] = ()) -> list[str]:
    """The names to list, the model's own first, each once."""
    return list(dict.fromkeys([facts.id, *(name for name in served_names if name != ANY_NAME), *adapters]))


def resolve_adapter(generation: Generation, model: str, facts: ModelFacts, adapters: Sequence[str]) -> str | None:
    """The adapter that a request names, in its own field or as its model. Raises RequestError when it names two."""
    named = model if model in adapters and model not in (facts.id, *facts.aliases) else None
    if generation.adapter is None or named is None or named == generation.adapter:
        return generation.adapter or named
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"`model` is the adapter {named} and `adapters` names {generation.adapter}: send one of them",
        "adapters",
    )


def prompt_ids(
    prompts: Sequence[Prompt], text: ModelText, facts: ModelFacts, tools: ToolUse | None = None
) -> list[list[int]]:
    """Each prompt's token ids. Raises RequestError for an empty prompt, one that fills the context, an unknown id."""
    return [_checked(_tokenised(prompt, text, facts, tools), prompt, facts) for prompt in prompts]


def prompt_length(generation: Generation, text: ModelText, facts: ModelFacts) -> int:
    """Tokens of a request's prompts, also of those over the context. Raises RequestError for what cannot be rendered.

    One that is over it many times is refused: 16 MiB of text took 40 s and 2.8 GB, to say no more than that.
    """
    most = max(_COUNTED_CONTEXTS * facts.context_length, _COUNTED_TOKENS)
    wide = msgspec.structs.replace(facts, context_length=most)
    return sum(len(_tokenised(prompt, text, wide, generation.tools)) for prompt in generation.prompts)


def build_submits(generation: Generation, prompts: Sequence[list[int]], plan: SubmitPlan) -> list[Submit]:
    """The rows of each prompt, prompt after prompt: a prompt's rows are one group, which the engine prefills once."""
    submits: list[Submit] = []
    for index, ids in enumerate(prompts):
        prompt = TokenPrompt(ids=pack_ids(ids))
        seed = secrets.randbits(_SEED_BITS) if generation.seed is None else generation.seed & _SEED_MASK
        # An echo alone still takes one token: nothing else makes the engine read the prompt.
        max_tokens = 1 if generation.is_echo_only else clamped(plan.max_tokens, len(ids), plan.facts)
        for number in range(generation.rows_per_prompt):
            choice = len(submits)
            submits.append(
                Submit(
                    epoch=plan.epoch,
                    id=SubmitId(f"{plan.reply_id}/{choice}"),
                    group=f"{plan.reply_id}/{index}",
                    choice=choice,
                    model=plan.facts.id,
                    prompt=prompt,
                    max_tokens=max_tokens,
                    sampling=plan.sampling,
                    seed=choice_seed(seed, number),
                    stop_ids=generation.stop_ids,
                    ignore_eos=generation.ignore_eos,
                    min_tokens=generation.min_tokens,
                    logprobs=_logprobs_wanted(generation),
                    grammar=None if generation.constraint is None else generation.constraint.grammar,
                    priority=-generation.priority,
                    deadline_ms=plan.deadline_ms,
                    adapter=generation.adapter,
                    draft_tokens=generation.draft_tokens,
                    cache_salt=generation.cache_salt,
                    snapshot_at=plan.snapshots[index] if plan.snapshots else (),
                )
            )
    return submits


def _logprobs_wanted(generation: Generation) -> LogprobsWanted | None:
    """As asked; the likeliest of several rows cannot be told without, either."""
    asked = generation.logprobs
    if asked is not None:
        return LogprobsWanted(top=asked.top, of_prompt=generation.has_echo)
    return LogprobsWanted() if generation.rows_per_prompt > generation.choices else None


def check_choices(generation: Generation, facts: ModelFacts) -> None:
    """Raises RequestError for an `n` or `best_of` over the row cap, or so many rows that the reply cannot be held."""
    rows, most = generation.rows_per_prompt, facts.limits.max_rows
    name = "n" if rows == generation.choices else "best_of"
    if rows > most:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`{name}` is {rows}, and this server runs at most {most} rows at once (--max-rows)",
            name,
        )
    total = rows * len(generation.prompts)
    if total > MAX_CHOICES:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`{name}` {rows} times {len(generation.prompts)} prompts are {total} choices, "
            f"at most {MAX_CHOICES} are taken",
            name,
        )


def check_draft(generation: Generation, facts: ModelFacts) -> None:
    """Raises RequestError for a draft model that is not the one beside the served model."""
    name = generation.draft_model
    if name not in (None, "default_model", facts.draft_model):
        has = f"{facts.draft_model} is" if facts.draft_model else "none is"
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`draft_model` {name} is not served here; {has} (--draft-model): leave it out",
            "draft_model",
        )


def choice_seed(seed: int, number: int) -> int:
    """The seed of a prompt's choice: the request's own for choice 0, others for the rest, none of them near it.

    Only the low word moves, by an odd step (2**32 over the golden ratio): up to 2**32 choices never meet,
    neither as they are nor folded to 32 bits.
    """
    return seed & ~_LOW_WORD | (seed + number * _SEED_STEP) & _LOW_WORD


def wanted_tokens(generation: Generation, default_tokens: int | None) -> int | None:
    """The request's max_tokens, or the server's; a min_tokens beyond the latter counts more than it."""
    if generation.max_tokens is not None or default_tokens is None:
        return generation.max_tokens
    return max(default_tokens, generation.min_tokens)


def clamped(max_tokens: int | None, prompt_tokens: int, facts: ModelFacts) -> int | None:
    """max_tokens within the room the prompt leaves; None stays: to the context's end."""
    return None if max_tokens is None else min(max_tokens, facts.context_length - prompt_tokens)


def _tokenised(prompt: Prompt, text: ModelText, facts: ModelFacts, tools: ToolUse | None) -> list[int]:
    match prompt:
        case ChatPrompt():
            try:
                rendered_text = rendered(prompt, tools, text)
            except RequestError as error:
                if error.param != "messages":
                    raise
                raise RequestError(error.code, error.message, prompt.param) from error
            _check_length(rendered_text, prompt, text, facts)
            return text.encode_chat(rendered_text)
        case TextPrompt(text=raw):
            _check_length(raw, prompt, text, facts)
            return text.tokenizer.encode_text(raw)
        case TokensPrompt(ids=ids):
            return list(ids)


def _check_length(rendered: str, prompt: Prompt, text: ModelText, facts: ModelFacts) -> None:
    """A text that is too long in any case is refused at once: tokenising it could take minutes."""
    fewest = 0 if text.limits is None else text.limits.fewest_tokens(rendered)
    if fewest >= facts.context_length:
        raise PromptTooLongError(fewest, facts.context_length, _param(prompt), facts.memory_limit, is_least=True)


def _checked(ids: list[int], prompt: Prompt, facts: ModelFacts) -> list[int]:
    param = _param(prompt)
    if not ids:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the prompt is empty: it has no tokens", param)
    if len(ids) >= facts.context_length:
        raise PromptTooLongError(len(ids), facts.context_length, param, facts.memory_limit)
    if isinstance(prompt, TokensPrompt):
        _check_known(ids, param, facts)
    return ids


def _check_known(ids: list[int], param: str, facts: ModelFacts) -> None:
    if min(ids) >= 0 and max(ids) < facts.vocabulary_size:
        return
    unknown = next(id_ for id_ in ids if not 0 <= id_ < facts.vocabulary_size)
    raise RequestError(
        ErrorCode.INVALID_REQUEST,
        f"token id {unknown} is outside the vocabulary of {facts.vocabulary_size} tokens",
        param,
    )


def _param(prompt: Prompt) -> str:
    return prompt.param if isinstance(prompt, ChatPrompt) else "prompt"
