"""The shortest prefix that is worth keeping, and whether flags and model leave room for it at all."""

from collections.abc import Sequence
from typing import Any, Final

from engine.prefix.holding import Holding
from engine.prefix.store import StoreLimits

# A chunk, however short, costs about a quarter of a whole one: shorter prefixes are neither kept nor taken.
_LEAST_SHARE: Final = 4


def least_tokens(chunk_tokens: int) -> int:
    """Of a prefix that is worth keeping."""
    return max(1, chunk_tokens // _LEAST_SHARE)


def why_none_is_kept(limits: StoreLimits, caches: Sequence[Any], tokens: int) -> str:
    """In a user's words; empty where prompts are kept.

    caches: solo ones with so many tokens, the fewest worth keeping; their arrays need not be there.
    """
    holding = Holding.of_solo(list(caches), tokens)
    if holding is None:
        return "the model's layers keep caches of no known kind"
    if limits.entries == 0:
        return "--prompt-cache-size is 0"
    if limits.kept_bytes == 0:
        return "--prompt-cache-bytes is 0"
    least_bytes = sum(cache.nbytes for cache in holding.prefix(tokens))
    if limits.kept_bytes is None or limits.kept_bytes >= least_bytes:
        return ""
    return (
        f"--prompt-cache-bytes {limits.kept_bytes} holds no prompt of a request that ran alone: the shortest, of "
        f"{tokens} tokens, takes {least_bytes}; raise it, or set it to 0"
    )
