"""Grammars over the tiny tokenizer of the random models, and what a row says about them."""

import functools
import tempfile
from pathlib import Path

from bench.tiny_tokenizer import MARKERS, TURN_END, write_tiny_tokenizer
from engine.sampling.grammar import GrammarCompiler, GrammarTokenizer, RowGrammar, row_grammar
from protocol.messages import Grammar, GrammarKind

EOS_ID = MARKERS.index(TURN_END)
VOCABULARY_SIZE = 512


@functools.cache
def tokenizer_json(vocabulary_size: int = VOCABULARY_SIZE) -> bytes:
    """The tiny tokenizer's file."""
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_tokenizer(Path(folder), vocabulary_size)
        return (Path(folder) / "tokenizer.json").read_bytes()


@functools.cache
def grammar_tokenizer() -> GrammarTokenizer:
    """The tiny tokenizer as llguidance walks it."""
    return GrammarTokenizer.read(tokenizer_json(), VOCABULARY_SIZE, (EOS_ID,))


def token_ids(text: str) -> list[int]:
    """The text's tokens."""
    trie = grammar_tokenizer().trie
    assert trie is not None
    return trie.tokenize_str(text)


def text_of(ids: list[int]) -> str:
    """The tokens' text."""
    trie = grammar_tokenizer().trie
    assert trie is not None
    return trie.decode_str(ids)


@functools.cache
def compiler() -> GrammarCompiler:
    """One for the whole run."""
    return GrammarCompiler(grammar_tokenizer())


def compiled(kind: GrammarKind, text: str) -> RowGrammar:
    """A row's grammar at its beginning. Raises EngineError."""
    future = compiler().start(Grammar(kind=kind, text=text))
    future.exception(timeout=30)
    return row_grammar(future, ())


def takes(kind: GrammarKind, grammar: str, text: str) -> bool:
    """Whether the whole text fits the grammar and may end there."""
    matcher = compiled(kind, grammar).matcher
    return matcher.consume_tokens(token_ids(text)) and matcher.is_accepting()
