"""Masks of grammar rows: filled in llguidance's threads while the device works, then laid over the rows' logits.

Owns what a mask lets through, the row's own limits on its end included; where a row stands is grammar.py's.
"""

import os
from collections.abc import Sequence
from typing import Final

import mlx.core as mx
import numpy as np
from llguidance import LLExecutor
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par
from numpy.typing import NDArray

from engine.row import Row
from engine.sampling.grammar import GrammarTokenizer

MAX_THREADS: Final = 4
_WORD_BITS: Final = 32
_SIGN: Final = 0x8000_0000
# The bits of float32's infinity: with the sign bit set it is the negative one.
_INFINITY: Final = 0x7F80_0000


class GrammarMasks:
    """One per engine. Its threads are started by the first mask."""

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self._trie = tokenizer.trie
        self._eos_ids = tokenizer.eos_ids
        self._executor: LLExecutor | None = None
        self._shifts = mx.arange(_WORD_BITS - 1, -1, -1, dtype=mx.uint32)

    def laid_over(self, logits: mx.array, rows: Sequence[Row]) -> mx.array:
        """Logits [B, V] in which tokens that a row's grammar does not allow are -inf; other rows' stay as they are.

        The array given is changed in place. A grammar at its limits says so when its next token is taken.
        """
        places = [place for place, row in enumerate(rows) if row.grammar is not None]
        if not places:
            return logits
        allowed = mx.array(self._filled([rows[place] for place in places]))
        limited = mx.minimum(logits[mx.array(places)], self._ceilings(allowed, logits))
        if len(places) == len(rows):
            return limited
        # Row by row: on CPU a scatter takes four times as long.
        for index, place in enumerate(places):
            logits[place : place + 1] = limited[index : index + 1]
        return logits

    def _filled(self, rows: Sequence[Row]) -> NDArray[np.uint32]:
        """[R, ceil(V / 32)]: one bit a token, set where it is allowed. Waits for the threads."""
        assert self._trie is not None, "without a tokenizer no row has a grammar"
        if self._executor is None:
            self._executor = LLExecutor(min(MAX_THREADS, os.cpu_count() or 1))
        masks = allocate_token_bitmask(len(rows), self._trie.vocab_size)
        matchers = [(row.grammar.matcher, place) for place, row in enumerate(rows) if row.grammar is not None]
        fill_next_token_bitmask_par(self._executor, matchers, masks)
        words = masks.view(np.uint32)
        for mask, row in zip(words, rows, strict=True):
            _withhold(mask, self._withheld_ids(row))
        return words

    def _withheld_ids(self, row: Row) -> frozenset[int]:
        """What would end the row before it may end by itself."""
        if row.drawn < row.submit.min_tokens:
            return row.stop_ids
        return self._eos_ids if row.submit.ignore_eos else frozenset()

    def _ceilings(self, allowed: mx.array, logits: mx.array) -> mx.array:
        """[R, V] of the logits' type: +inf where a bit of [R, W] uint32 is set, -inf where not and beyond them."""
        signs = ((~allowed)[:, :, None] << self._shifts) & mx.array(_SIGN, mx.uint32)
        ceilings = (signs | mx.array(_INFINITY, mx.uint32)).view(mx.float32).reshape(allowed.shape[0], -1)
        missing = logits.shape[-1] - ceilings.shape[-1]
        if missing > 0:
            ceilings = mx.pad(ceilings, [(0, 0), (0, missing)], constant_values=-mx.inf)
        return ceilings[:, : logits.shape[-1]].astype(logits.dtype)


def _withhold(mask: NDArray[np.uint32], ids: frozenset[int]) -> None:
    """Clears bits, unless none would be left: where the grammar allows only an end, the row ends."""
    if not ids:
        return
    kept = mask.copy()
    for id_ in ids:
        if id_ // _WORD_BITS < len(kept):
            kept[id_ // _WORD_BITS] &= np.uint32(~(1 << id_ % _WORD_BITS) & 0xFFFF_FFFF)
    if kept.any():
        mask[:] = kept
