"""Masks of grammar rows: filled in llguidance's threads while the device works, then laid over the rows' logits.

Owns what a mask lets through, the row's own limits on its end included; where a row stands is grammar.py's.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import mlx.core as mx
import numpy as np
from llguidance import LLExecutor
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask, fill_next_token_bitmask_par
from numpy.typing import NDArray

from engine.row import Row
from engine.sampling.grammar import GrammarTokenizer, RowGrammar
from engine.sampling.grammar_probe import MAX_TOKEN_CPU_S

MAX_THREADS: Final = 4
# With fewer rows, or fewer processors to spare, threads cost more than they save: 8 rows take 0.6 ms one by one, and on
# two processors 1.0 ms together, which the device's own threads lack.
LEAST_TOGETHER: Final = 4
_WORD_BITS: Final = 32
_LOOKED_UP_BITS: Final = 16

# [C, W], one bit a token, set where it is allowed.
Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Work:
    """One row's. token: what it takes first, None for nothing. withheld: what would end it before it may."""

    grammar: RowGrammar
    token: int | None
    withheld: frozenset[int]


class GrammarMasks:
    """One per engine. Its threads are started by the first mask. threads: that fill masks together; 1 for none."""

    def __init__(self, tokenizer: GrammarTokenizer, threads: int | None = None) -> None:
        self._trie = tokenizer.trie
        self._eos_ids = tokenizer.eos_ids
        self._thread: ThreadPoolExecutor | None = None
        self._threads = min(MAX_THREADS, (os.cpu_count() or 1) // 2) if threads is None else threads
        self._filler: LLExecutor | None = None
        self._is_wary = False
        self._tables: dict[mx.Dtype, mx.array] = {}
        self._host_table: NDArray[np.float32] | None = None

    def start(self, rows: Sequence[Row], unread: Sequence[int | None]) -> Future[Words]:
        """Sets the threads to fill the masks of rows in grammars, each after its unread token if it has one.

        A token that ends its row, or was not possible, is not taken. Until the masks are there nobody else may
        touch these rows. A grammar at its limits says so when its next token is taken.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")
            self._filler = LLExecutor(self._threads) if self._threads > 1 else None
        return self._thread.submit(self._filled, rows, unread)

    def laid_over(self, logits: mx.array, words: Words) -> mx.array:
        """Logits [C, V] in which tokens that a row's grammar does not allow are -inf."""
        penalties = self._penalties(words, logits.dtype)
        missing = logits.shape[-1] - penalties.shape[-1]
        if missing > 0:
            penalties = mx.pad(penalties, [(0, 0), (0, missing)], constant_values=-mx.inf)
        return logits + penalties[:, : logits.shape[-1]]

    def _penalties(self, words: Words, dtype: mx.Dtype) -> mx.array:
        """[C, bits of W]: 0 where a token is allowed, else -inf. One look-up is the fewest launches on a GPU.

        On a CPU it is the host's, which takes 43 us for eight rows of 49,152 where MLX takes 180.
        """
        halves = words.view(np.uint16)
        if mx.default_device().type != mx.DeviceType.cpu:
            if dtype not in self._tables:
                self._tables[dtype] = mx.array(_penalty_table()).astype(dtype)
            return self._tables[dtype][mx.array(halves)].reshape(len(words), -1)
        if self._host_table is None:
            self._host_table = _penalty_table()
        penalties = np.empty((*halves.shape, _LOOKED_UP_BITS), np.float32)
        # Without a mode numpy fills a buffer first, to leave `penalties` alone should an index be wrong.
        np.take(self._host_table, halves, axis=0, out=penalties, mode="clip")
        return mx.array(penalties.reshape(len(words), -1)).astype(dtype)

    def _work(self, row: Row, token: int | None) -> _Work:
        assert row.grammar is not None, "only rows in grammars have masks"
        is_taken = token is not None and token not in row.stop_ids and not row.is_dead_end(token)
        return _Work(row.grammar, token if is_taken else None, self._withheld_ids(row))

    def _withheld_ids(self, row: Row) -> frozenset[int]:
        if row.drawn < row.submit.min_tokens:
            return row.stop_ids
        return self._eos_ids if row.submit.ignore_eos else frozenset()

    def _filled(self, rows: Sequence[Row], unread: Sequence[int | None]) -> Words:
        """Runs in the thread."""
        assert self._trie is not None, "without a tokenizer no row has a grammar"
        work = [self._work(*each) for each in zip(rows, unread, strict=True)]
        masks = allocate_token_bitmask(len(work), self._trie.vocab_size)
        # Many together while they are quick; else one by one, for only so it is seen which of them is not.
        if self._filler is not None and len(work) >= LEAST_TOGETHER and not self._is_wary:
            began_s = time.monotonic()
            _fill_together(self._filler, work, masks)
            self._is_wary = time.monotonic() - began_s > MAX_TOKEN_CPU_S
        else:
            self._is_wary = max(_filled_alone(each, masks, index) for index, each in enumerate(work)) > MAX_TOKEN_CPU_S
        words = masks.view(np.uint32)
        for mask, each in zip(words, work, strict=True):
            _withhold(mask, each.withheld)
        return words


def _penalty_table() -> NDArray[np.float32]:
    """[65,536, 16]: what a mask's next 16 bits add to 16 logits."""
    bits = np.arange(1 << _LOOKED_UP_BITS)[:, None] >> np.arange(_LOOKED_UP_BITS) & 1
    return np.where(bits == 1, np.float32(0.0), np.float32(-np.inf))


def _fill_together(filler: LLExecutor, work: list[_Work], masks: NDArray[np.int32]) -> None:
    taking = [(each.grammar, each.token) for each in work if each.token is not None]
    if taking:
        filler.consume_token_par([(grammar.matcher, token) for grammar, token in taking])
    for grammar, _ in taking:
        grammar.is_ahead = True
    fill_next_token_bitmask_par(filler, [(each.grammar.matcher, index) for index, each in enumerate(work)], masks)


def _filled_alone(work: _Work, masks: NDArray[np.int32], index: int) -> float:
    """Fills one row's mask. Returns what it took: seconds of a processor."""
    began_s = time.thread_time()
    if work.token is not None:
        work.grammar.take_ahead(work.token)
    fill_next_token_bitmask(work.grammar.matcher, masks, index)
    cpu_s = time.thread_time() - began_s
    work.grammar.charge(cpu_s)
    return cpu_s


def _withhold(mask: Words, ids: frozenset[int]) -> None:
    """Clears bits, unless none would be left: where the grammar allows only an end, the row ends."""
    if not ids:
        return
    kept = mask.copy()
    for id_ in ids:
        if id_ // _WORD_BITS < len(kept):
            kept[id_ // _WORD_BITS] &= np.uint32(~(1 << id_ % _WORD_BITS) & 0xFFFF_FFFF)
    if kept.any():
        mask[:] = kept
