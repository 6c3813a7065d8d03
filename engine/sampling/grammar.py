"""Grammars of rows: compiled beside the loop, cached by content, advanced token by token. llguidance does the work.

Owns the compiler's threads and its limits; the masks' way to the device is masks.py's.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from engine.errors import EngineError
from engine.sampling.grammar_text import llguidance_text, refused
from protocol.errors import ErrorCode
from protocol.messages import Grammar

log = logging.getLogger(__name__)

MAX_CACHED: Final = 64
_THREADS: Final = 2
_SHOWN_LENGTH: Final = 600
# Beside llguidance's own bounds: a state of its lexer takes 1-2 kB, and the work of a token grows with the square of
# a row's items. A closed object may have about 240 optional properties, and needs four items for each.
_LIMITS: Final = LLParserLimits(max_lexer_states=20_000, max_items_in_row=1_000, verbose_errors=False)
# An ambiguous grammar gets slower with each token; everybody waits for it. Others need under 3 ms.
MAX_TOKEN_CPU_S: Final = 0.05

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
    """Where one row stands in its grammar."""

    __slots__ = ("_is_slow", "_matcher")

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._is_slow = False

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
        """EngineError(DECODE_FAILED) when the matcher was given what does not fit, or has hit a limit."""
        if self._is_slow:
            return EngineError(ErrorCode.DECODE_FAILED, "the grammar is too ambiguous: it takes too long for a token")
        if not self._matcher.is_error():
            return None
        why = self._matcher.get_error()[:_SHOWN_LENGTH]
        return EngineError(ErrorCode.DECODE_FAILED, f"the grammar cannot go on: {why}")

    @property
    def forced(self) -> list[int]:
        """The next tokens, where the grammar leaves no choice of text; in the tokenizer's own split of it."""
        return self._matcher.compute_ff_tokens()

    def take(self, token: int) -> None:
        """Advances by one token; one that is not allowed here is a fault from now on."""
        began_s = time.thread_time()
        self._matcher.consume_token(token)
        self._is_slow |= time.thread_time() - began_s > MAX_TOKEN_CPU_S


class GrammarCompiler:
    """Compiles in threads of its own, each content once while it is remembered."""

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.tokenizer = tokenizer
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
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
        if found is None:
            found = self._threads.submit(_compile, trie, grammar)
            self._compiled[grammar] = found
            if len(self._compiled) > MAX_CACHED:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(grammar)
        return found


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


def _compile(trie: LLTokenizer, grammar: Grammar) -> LLMatcher:
    """Raises EngineError with the compiler's message. The first mask is computed here: it is the dearest one."""
    matcher = LLMatcher(trie, llguidance_text(grammar), log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        raise refused(f"the grammar does not compile: {matcher.get_error()[:_SHOWN_LENGTH]}")
    return matcher
