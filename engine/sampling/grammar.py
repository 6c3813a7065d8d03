"""Grammars of rows: compiled beside the loop, cached by content, advanced token by token. llguidance does the work.

Owns the compiler's threads and its limits; the masks' way to the device is masks.py's.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engine.errors import EngineError
from engine.sampling.grammar_probe import MAX_TOKEN_CPU_S, trouble_of
from engine.sampling.grammar_text import llguidance_text, refused
from protocol.errors import ErrorCode
from protocol.messages import Grammar

log = logging.getLogger(__name__)

MAX_CACHED: Final = 64
# Of texts: what llguidance makes of one takes a multiple of it.
MAX_CACHED_BYTES: Final = 1024 * 1024
_THREADS: Final = 2
# llguidance's words for a token that its mask does not allow. All else that stops it is a limit of the grammar's own.
_MISFIT: Final = "doesn't satisfy the grammar"
_SHOWN_LENGTH: Final = 600
_MOST_SLOW_MASKS: Final = 3
# Beside llguidance's own bounds: a state of its lexer takes 1-2 kB, and the work of a token grows with the square of
# a row's items. A closed object may have about 240 optional properties, and needs four items for each.
_LIMITS: Final = LLParserLimits(max_lexer_states=20_000, max_items_in_row=1_000, verbose_errors=False)
# llguidance follows references between rules by recursion: 256 KiB of text hold a chain that takes 100 MB of stack,
# and a thread that overflows its stack ends the process. Pages that nobody uses cost nothing.
_STACK_BYTES: Final = 512 * 1024 * 1024

CompiledGrammar = Future[LLMatcher]


@dataclass(frozen=True, slots=True)
class GrammarTokenizer:
    """A tokenizer as llguidance walks it; unusable_because: why the model cannot take a grammar, None if it can."""

    trie: LLTokenizer | None
    unusable_because: str | None = None

    @property
    def eos_ids(self) -> frozenset[int]:
        """What ends a text whose grammar is satisfied; also a guess, where the model names none."""
        return frozenset() if self.trie is None else frozenset(self.trie.eos_tokens)

    @classmethod
    def read(cls, tokenizer_json: bytes, vocabulary_size: int, eos_ids: Sequence[int]) -> "GrammarTokenizer":
        """Takes about 10 µs a token, and holds the interpreter lock: so it is made before the model is ready.

        vocabulary_size: of the logits, which may be wider than the tokenizer and, rarely, narrower.
        """
        text = tokenizer_json.decode()
        eos = list(eos_ids) or None
        try:
            try:
                return cls(LLTokenizer(text, n_vocab=vocabulary_size, eos_token=eos))
            except ValueError:
                return cls(LLTokenizer(text, eos_token=eos))
        except ValueError as error:
            log.warning("grammar.unusable", extra={"why": str(error)[:_SHOWN_LENGTH]})
            return cls(None, f"llguidance cannot read this model's tokenizer: {str(error)[:_SHOWN_LENGTH]}")


class RowGrammar:
    """Where one row stands in its grammar. is_ahead: it has taken a token that the row has not been told yet."""

    __slots__ = ("_is_slow", "_matcher", "_slow_masks", "is_ahead")

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._is_slow = False
        self._slow_masks = 0
        self.is_ahead = False

    @property
    def matcher(self) -> LLMatcher:
        """llguidance's own state, for those who fill masks from it."""
        return self._matcher

    @property
    def is_satisfied(self) -> bool:
        """Nothing more can follow, but an end of text."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    @property
    def fault(self) -> EngineError | None:
        """DECODE_FAILED when the matcher was given what does not fit, INVALID_REQUEST when it has hit a limit."""
        if self._is_slow or self._slow_masks >= _MOST_SLOW_MASKS:
            return EngineError(ErrorCode.INVALID_REQUEST, "the grammar is too slow: its tokens take too long")
        if not self._matcher.is_error():
            return None
        why = self._matcher.get_error()[:_SHOWN_LENGTH]
        code = ErrorCode.DECODE_FAILED if _MISFIT in why else ErrorCode.INVALID_REQUEST
        return EngineError(code, f"the grammar cannot go on: {why}")

    @property
    def forced(self) -> list[int]:
        """The next tokens, where the grammar leaves no choice of text; in the tokenizer's own split of it."""
        return self._matcher.compute_ff_tokens()

    @property
    def may_end(self) -> bool:
        """Whether what is there fits the whole grammar, though more might follow."""
        return self._matcher.is_accepting()

    def can_take(self, token: int) -> bool:
        """Whether the token may come next. A matcher that cannot go on may take anything: its fault says more."""
        return self._matcher.is_error() or self._matcher.validate_tokens([token]) == 1

    def take(self, token: int) -> None:
        """Advances by one token, unless it has already; one that is not allowed here is a fault from now on."""
        if not self.is_ahead:
            self.take_ahead(token)
        self.is_ahead = False

    def charge(self, cpu_s: float) -> None:
        """A token with its mask took so many seconds of a processor. One may be slow where states are new."""
        self._slow_masks += cpu_s > MAX_TOKEN_CPU_S

    def take_ahead(self, token: int) -> None:
        """Advances by a token that the row will be told of later."""
        self.is_ahead = True
        began_s = time.thread_time()
        self._matcher.consume_token(token)
        self._is_slow |= time.thread_time() - began_s > MAX_TOKEN_CPU_S


class GrammarCompiler:
    """Compiles in threads of its own, each content once while it is remembered."""

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.tokenizer = tokenizer
        self._threads = _deep_threads()
        self._compiled: OrderedDict[Grammar, CompiledGrammar] = OrderedDict()

    def close(self) -> None:
        """Drops what waits; one that is being compiled ends first."""
        self._threads.shutdown(cancel_futures=True)

    def start(self, grammar: Grammar) -> CompiledGrammar:
        """The grammar's compilation, begun or done. Raises EngineError when this model takes no grammar at all."""
        trie = self.tokenizer.trie
        if trie is None:
            reason = self.tokenizer.unusable_because
            raise EngineError(ErrorCode.UNSUPPORTED, f"this model takes no grammar: {reason}", param="grammar")
        found = self._compiled.get(grammar)
        if found is None or found.cancelled():
            found = self._threads.submit(_compile, trie, grammar)
            self._compiled[grammar] = found
            while len(self._compiled) > MAX_CACHED or self._cached_bytes > MAX_CACHED_BYTES:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return found

    @property
    def _cached_bytes(self) -> int:
        return sum(len(grammar.text) for grammar in self._compiled)


def row_grammar(compiled: CompiledGrammar, generated: Sequence[int]) -> RowGrammar:
    """A row's own state, after the tokens it has got already. Raises EngineError for a grammar that is refused."""
    error = compiled.exception(timeout=0)
    if isinstance(error, EngineError):
        raise error
    if error is not None:
        raise refused(f"the grammar's compiler failed: {type(error).__name__}: {error}") from error
    grammar = RowGrammar(compiled.result().deep_copy())
    for token in generated:
        grammar.take(token)
    fault = grammar.fault
    if fault is not None:
        raise refused(f"the tokens delivered so far do not fit the grammar: {fault.message}")
    return grammar


def _deep_threads() -> ThreadPoolExecutor:
    """Threads with room for deep recursion. The size is read when a thread starts: here, all of them at once."""
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
    everyone = threading.Barrier(_THREADS + 1)
    usual_bytes = threading.stack_size(_STACK_BYTES)
    for _ in range(_THREADS):
        threads.submit(everyone.wait)
    everyone.wait()
    threading.stack_size(usual_bytes)
    return threads


def _compile(trie: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """Raises EngineError with the compiler's message. The first mask is computed here: it is the dearest one."""
    matcher = LLMatcher(trie, llguidance_text(grammar), log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    trouble = matcher.get_error() if matcher.is_error() else trouble_of(matcher)
    if trouble is not None:
        raise refused(f"the grammar does not compile: {trouble[:_SHOWN_LENGTH]}")
    return matcher
