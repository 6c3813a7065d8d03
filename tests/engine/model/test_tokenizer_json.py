"""What the engine reads of tokenizer.json, held against the tokenizers library."""

from typing import Any

import pytest
from tokenizers import Tokenizer, models, processors

from engine.errors import EngineError
from engine.model.tokenizer_json import TokenizerJson
from protocol.errors import ErrorCode

WORDS = {"<unk>": 0, "<s>": 1, "a": 2, "b": 3}
BOS = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)])
EOS = processors.TemplateProcessing(single="$A <s>", pair="$A $B <s>", special_tokens=[("<s>", 1)])
MODELS = {
    "words": models.WordLevel(WORDS, unk_token="<unk>"),
    "bpe": models.BPE(vocab=WORDS, merges=[]),
    "pieces": models.WordPiece(WORDS, unk_token="<unk>"),
    "unigram": models.Unigram([(word, -1.0) for word in WORDS], unk_id=0),
}


def both(model: Any, post_processor: Any = None) -> tuple[TokenizerJson, Tokenizer]:
    oracle = Tokenizer(model)
    oracle.add_special_tokens(["<s>", "<new>"])
    if post_processor is not None:
        oracle.post_processor = post_processor
    return TokenizerJson.read(oracle.to_str().encode()), oracle


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("token", ["<s>", "<new>", "a", "<unk>", "nowhere", ""])
def test_ids_are_the_librarys(kind: str, token: str) -> None:
    """Added tokens and those of the vocabulary, in each kind of file."""
    tokens, oracle = both(MODELS[kind])
    assert tokens.token_id(token) == oracle.token_to_id(token)


@pytest.mark.parametrize(
    "post_processor",
    [None, BOS, EOS, processors.ByteLevel(), processors.Sequence([processors.ByteLevel(), BOS])],
    ids=["none", "bos", "eos", "bytes", "bytes and bos"],
)
def test_a_bos_is_seen_where_the_library_adds_it(post_processor: Any) -> None:
    """In a template, alone or in a sequence; not at the end of a text."""
    tokens, oracle = both(MODELS["words"], post_processor)
    assert tokens.starts_with("<s>") == (oracle.encode("a").ids[0] == 1)
    assert tokens.starts_with("a") is False


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"model": {}}', b'{"model": []}', b"\xff"])
def test_a_broken_file_is_refused(content: bytes) -> None:
    """At the engine's start, not in every client."""
    with pytest.raises(EngineError, match=r"tokenizer\.json") as caught:
        TokenizerJson.read(content)
    assert caught.value.code == ErrorCode.BAD_MODEL


def test_a_broken_vocabulary_is_refused_when_it_is_needed() -> None:
    """Values that are no ids."""
    tokens = TokenizerJson.read(b'{"model": {"vocab": {"a": "b"}}, "added_tokens": [{"id": 4, "content": "x"}]}')
    assert tokens.token_id("x") == 4
    with pytest.raises(EngineError, match=r"tokenizer\.json"):
        tokens.token_id("a")
