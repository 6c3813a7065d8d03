"""Token counts as OpenAI spells them, the same streamed or whole, and the head of what has them."""

from typing import TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from frontend.dialects.base import ReplyFacts
from protocol.messages import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """cached_tokens: prompt tokens that were not computed again."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """reasoning_tokens: among the completion's, with those that begin and end the reasoning."""

    reasoning_tokens: int


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's `usage`; total is prompt and completion. A text that is not parsed has no details."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


def usage_body(usage: Usage, reasoning_tokens: int | None = None) -> UsageBody:
    """The wire's counts in OpenAI's words. reasoning_tokens: None where no reasoning is told apart."""
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached_tokens),
        completion_tokens_details=UNSET
        if reasoning_tokens is None
        else CompletionTokensDetails(reasoning_tokens=reasoning_tokens),
    )


class Head(TypedDict):
    """What every frame, and every whole reply, says of itself."""

    id: str
    created: int
    model: str
    system_fingerprint: str


def head(facts: ReplyFacts) -> Head:
    """The same for a reply from its first frame to its last."""
    return Head(id=facts.id, created=facts.created, model=facts.model, system_fingerprint=facts.fingerprint)
