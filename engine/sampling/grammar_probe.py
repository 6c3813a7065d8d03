"""What a grammar does at its first tokens: found out when it is compiled, so that it is refused instead of failing.

llguidance stops at its limits without a word in a mask; the next token finds the matcher broken. Runs in the
compiler's threads.
"""

import time
from typing import Final

import numpy as np
from llguidance import LLMatcher

# Everybody who decodes beside a row waits for its tokens. Most grammars need under 3 ms of a processor for one.
MAX_TOKEN_CPU_S: Final = 0.05
# Of the start alone, whose mask was computed before: what forces a text of 100,000 letters takes 25 ms each time.
_MAX_START_CPU_S: Final = 0.02
_STARTS: Final = 4
_DEPTH: Final = 3
# For the whole probe: what is slower than this is seen in a row's own tokens.
_BUDGET_CPU_S: Final = 0.5


def trouble_of(matcher: LLMatcher) -> str | None:
    """Why a row should not start with this grammar; None when its first tokens can be taken, and in time.

    matcher: fresh, its first mask computed once, which is the dearest one.
    """
    began_s = time.thread_time()
    first = _allowed(matcher)
    if time.thread_time() - began_s > _MAX_START_CPU_S:
        return "a token takes too long: shorten its repetitions and constants"
    spread = first[:: max(1, len(first) // _STARTS)][:_STARTS]
    for token in spread:
        walker = matcher.deep_copy()
        trouble = _walked(walker, token)
        if trouble is not None or time.thread_time() - began_s > _BUDGET_CPU_S:
            return trouble
    return None


def _walked(walker: LLMatcher, token: int) -> str | None:
    for _ in range(_DEPTH):
        walker.consume_token(token)
        if walker.is_error():
            return walker.get_error()
        allowed = _allowed(walker)
        if walker.is_stopped() or not allowed:
            break
        token = allowed[0]
    return walker.get_error() if walker.is_error() else None


def _allowed(matcher: LLMatcher) -> list[int]:
    """Ids that may come next."""
    words = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.flatnonzero(np.unpackbits(words, bitorder="little")).tolist()
