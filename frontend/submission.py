"""From a parsed request to its Submits: model name, prompt tokens, room in the context, seeds.

Pure functions; a long prompt's tokenising may run in a worker thread.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from frontend.dialects.base import ChatPrompt, Generation, Prompt, TextPrompt, TokensPrompt
from frontend.errors import RequestError
from frontend.model_text import ModelText
from protocol.codec import pack_ids
from protocol.errors import ErrorCode
from protocol.messages import Epoch, ModelFacts, Submit, SubmitId, TokenPrompt

ANY_NAME = "*"
_SEED_MASK = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitPlan:
    """What all choices of one request share. deadline_ms: from now."""

    reply_id: str
    epoch: Epoch
    facts: ModelFacts
    deadline_ms: int | None


def resolve_model(name: str | None, facts: ModelFacts, served_names: Sequence[str]) -> str:
    """The name to answer with. Raises RequestError(MODEL_NOT_FOUND) naming what is served."""
    if name is None:
        return facts.id
    names = {facts.id, *facts.aliases, *served_names}
    if name in names or ANY_NAME in names:
        return name
    served = ", ".join(f"`{known}`" for known in served_models(facts, served_names))
    raise RequestError(
        ErrorCode.MODEL_NOT_FOUND, f"the model `{name}` does not exist; this server serves {served}", "model"
    )


def served_models(facts: ModelFacts, served_names: Sequence[str]) -> list[str]:
    """The names to list, the model's own first, each once."""
    return list(dict.fromkeys([facts.id, *(name for name in served_names if name != ANY_NAME)]))


def prompt_ids(prompts: Sequence[Prompt], text: ModelText, facts: ModelFacts) -> list[list[int]]:
    """Each prompt's token ids. Raises RequestError for an empty prompt, one that fills the context, an unknown id."""
    return [_checked(_tokenised(prompt, text), prompt, facts) for prompt in prompts]


def build_submits(generation: Generation, prompts: Sequence[list[int]], plan: SubmitPlan) -> list[Submit]:
    """One Submit per prompt, in order."""
    return [
        Submit(
            epoch=plan.epoch,
            id=SubmitId(f"{plan.reply_id}/{choice}"),
            group=f"{plan.reply_id}/{choice}",
            choice=choice,
            model=plan.facts.id,
            prompt=TokenPrompt(ids=pack_ids(ids)),
            max_tokens=clamped(generation.max_tokens, len(ids), plan.facts),
            sampling=generation.sampling,
            seed=secrets.randbits(63) if generation.seed is None else generation.seed & _SEED_MASK,
            stop_ids=generation.stop_ids,
            ignore_eos=generation.ignore_eos,
            min_tokens=generation.min_tokens,
            deadline_ms=plan.deadline_ms,
        )
        for choice, ids in enumerate(prompts)
    ]


def clamped(max_tokens: int | None, prompt_tokens: int, facts: ModelFacts) -> int | None:
    """max_tokens within the room the prompt leaves; None stays: to the context's end."""
    return None if max_tokens is None else min(max_tokens, facts.context_length - prompt_tokens)


def _tokenised(prompt: Prompt, text: ModelText) -> list[int]:
    match prompt:
        case ChatPrompt():
            rendered = text.template.render(
                prompt.messages,
                add_generation_prompt=prompt.add_generation_prompt,
                continue_final_message=prompt.continue_final_message,
            )
            return text.tokenizer.encode_rendered(rendered)
        case TextPrompt(text=raw):
            return text.tokenizer.encode_text(raw)
        case TokensPrompt(ids=ids):
            return list(ids)


def _checked(ids: list[int], prompt: Prompt, facts: ModelFacts) -> list[int]:
    param = "messages" if isinstance(prompt, ChatPrompt) else "prompt"
    if not ids:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the prompt is empty: it has no tokens", param)
    if len(ids) >= facts.context_length:
        raise RequestError(
            ErrorCode.CONTEXT_LENGTH_EXCEEDED,
            f"this model's context length is {facts.context_length} tokens, and the prompt has {len(ids)}: "
            "no room is left for a reply; shorten the prompt",
            param,
        )
    unknown = next((id_ for id_ in ids if not 0 <= id_ < facts.vocabulary_size), None)
    if isinstance(prompt, TokensPrompt) and unknown is not None:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"token id {unknown} is outside the vocabulary of {facts.vocabulary_size} tokens",
            param,
        )
    return ids
