"""What one row's caches take, by its length: exact per kind of cache, before the row is there.

Pure arithmetic over what the kinds say of a sample; owns no row and no budget.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from engine.cache.base import CacheKind
from engine.cache.columns import STEP_TOKENS

# Of different lengths, so many sums over all layers are remembered.
_REMEMBERED: Final = 4_096
# As wide as no row is.
_ENDLESS_COLUMNS: Final = 1 << 40


class Footprint:
    """samples: one solo cache a layer, in use; their arrays need not be there. chunk_tokens: of one prefill chunk.

    floats: samples of what a row has during its first chunk, where that is another class of cache.
    """

    def __init__(
        self,
        kinds: Sequence[CacheKind],
        samples: Sequence[Any],
        chunk_tokens: int,
        floats: "Footprint | None" = None,
    ) -> None:
        self._layers = list(zip(kinds, samples, strict=True))
        self._chunk_tokens = chunk_tokens
        self._floats = floats
        self.row_bytes = lru_cache(_REMEMBERED)(self._row_bytes)
        self.start_bytes = lru_cache(_REMEMBERED)(self._start_bytes)

    def _row_bytes(self, columns: int) -> int:
        """Of one row in a group of so many columns."""
        return sum(kind.row_bytes(cache, columns) for kind, cache in self._layers)

    def layer_bytes(self, columns: int) -> int:
        """Of its largest layer."""
        return max((kind.row_bytes(cache, columns) for kind, cache in self._layers), default=0)

    def start_layer_bytes(self, tokens: int) -> int:
        """Of the largest layer of a row alone."""
        alone = (self._alone_bytes(kind, cache, tokens + STEP_TOKENS) for kind, cache in self._layers)
        most = max(alone, default=0)
        first_chunk = min(tokens, self._chunk_tokens)
        return most if self._floats is None else max(most, self._floats.start_layer_bytes(first_chunk))

    @property
    def column_bytes(self) -> int:
        """Of one row's column over all layers, before any window is full."""
        return self.row_bytes(2) - self.row_bytes(1)

    def _start_bytes(self, tokens: int) -> int:
        """The most that a row takes alone, from its first chunk until it holds so many tokens and one step more."""
        alone = sum(self._alone_bytes(kind, cache, tokens + STEP_TOKENS) for kind, cache in self._layers)
        if self._floats is None:
            return alone
        first_chunk = min(tokens, self._chunk_tokens)
        return max(alone, self._floats.start_bytes(first_chunk) + self.layer_bytes(first_chunk + STEP_TOKENS))

    def _alone_bytes(self, kind: CacheKind, cache: Any, columns: int) -> int:
        """A chunk stands beside a full window until the next forward."""
        column_bytes = kind.row_bytes(cache, 2) - kind.row_bytes(cache, 1)
        uncapped = kind.row_bytes(cache, 1) + (columns - 1) * column_bytes
        beside = (self._chunk_tokens + STEP_TOKENS) * column_bytes
        return min(uncapped, kind.row_bytes(cache, _ENDLESS_COLUMNS) + beside)
