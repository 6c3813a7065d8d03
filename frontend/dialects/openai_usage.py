"""Token counts as OpenAI spells them, the same in both dialects, streamed or whole."""

import msgspec

from protocol.messages import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """cached_tokens: prompt tokens that were not computed again."""

    cached_tokens: int


class UsageBody(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's `usage`; total is prompt and completion."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def usage_body(usage: Usage) -> UsageBody:
    """The wire's counts in OpenAI's words."""
    return UsageBody(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=usage.cached_tokens),
    )
