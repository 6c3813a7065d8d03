"""Log-probabilities of one choice: what the engine told of each token, held until the token's text is told.

Each token's entry leaves once, in order; those that a stop string cut away never do.
"""

from collections import deque
from collections.abc import Sequence

from frontend.dialects.base import TokenChance, TokenEntry
from frontend.errors import RequestError
from frontend.stream import RowNews
from frontend.text.token_bytes import TokenBytes
from protocol.codec import unpack_ids
from protocol.errors import ErrorCode
from protocol.messages import TokenLogprobs


class TokenEntries:
    """offset: where the choice's own text begins, in characters: behind an echoed prompt."""

    def __init__(self, token_bytes: TokenBytes, offset: int) -> None:
        self._token_bytes = token_bytes
        self._offset = offset
        self._waiting: deque[tuple[int, TokenLogprobs]] = deque()

    def hear(self, news: RowNews) -> None:
        """Keeps what came with a row's tokens. Raises RequestError when the engine told more or less than one each."""
        check_count(len(news.logprobs), len(news.ids))
        self._waiting.extend(zip(news.ids, news.logprobs, strict=True))

    def told(self, starts: Sequence[int]) -> tuple[TokenEntry, ...]:
        """The entries of the next tokens, which begin at these characters of the text."""
        return tuple([self._next(start) for start in starts])

    def _next(self, start: int) -> TokenEntry:
        id_, logprobs = self._waiting.popleft()
        return entry_of(id_, logprobs, self._offset + start, self._token_bytes)


def check_count(told: int, expected: int) -> None:
    """Raises RequestError when the engine did not tell one log-probability for each token."""
    if told != expected:
        raise RequestError(
            ErrorCode.INTERNAL, f"the engine told {told} log-probabilities of {expected} tokens; please report it"
        )


def entry_of(id_: int, logprobs: TokenLogprobs | None, start: int, token_bytes: TokenBytes) -> TokenEntry:
    """One entry; logprobs None: of a token that nothing stands before."""
    if logprobs is None:
        return TokenEntry(TokenChance(id_, token_bytes.of(id_), None), (), start)
    pairs = zip(unpack_ids(logprobs.top_ids), logprobs.top, strict=False)
    alternatives = tuple([TokenChance(other, token_bytes.of(other), logprob) for other, logprob in pairs])
    return TokenEntry(TokenChance(id_, token_bytes.of(id_), logprobs.logprob), alternatives, start)
