"""The tokenizer that is built from a SentencePiece vocabulary in GGUF metadata."""

import json
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer

from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_sentencepiece import sentencepiece_tokenizer
from tests.engine.ctl.tiny_gemma3_gguf import TinyGemma3Gguf, pieces


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """The tiny file's tokenizer."""
    TinyGemma3Gguf().write(tmp_path / "tiny.gguf")
    return sentencepiece_tokenizer(Metadata(gguf.GGUFReader(tmp_path / "tiny.gguf")), pieces())


def test_every_text_begins_with_the_bos(tokenizer: Tokenizer) -> None:
    """Gemma talks nonsense without it; who adds special tokens himself turns it off."""
    assert tokenizer.encode("the sea").tokens == ["<bos>", "t", "he", "▁sea"]
    assert tokenizer.encode("the sea", add_special_tokens=False).tokens == ["t", "he", "▁sea"]


def test_pieces_merge_in_the_order_of_their_scores(tokenizer: Tokenizer) -> None:
    """`he` is better than `▁the`, which is built on it, and `in` than `ing`."""
    assert tokenizer.encode(" the things", add_special_tokens=False).tokens == ["▁the", "▁t", "h", "ing", "s"]
    merges = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    assert merges.index(("▁", "t")) < merges.index(("h", "e")) < merges.index(("▁t", "he"))


def test_given_pieces_come_before_learned_ones(tokenizer: Tokenizer) -> None:
    """Runs of spaces and line breaks are one token each, longer ones first, although GGUF scores them last."""
    assert tokenizer.encode("a   a\n\na", add_special_tokens=False).tokens == ["a", "▁▁▁", "a", "\n\n", "a"]
    assert tokenizer.encode("<td>a", add_special_tokens=False).tokens == ["<td>", "a"]


@pytest.mark.parametrize("text", ["the sea", "  two  spaces\n\ttab", "漢字 😀 e\u0301", "it's 2026!", " lead", ""])
def test_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """What no piece spells is spelled in bytes."""
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=True) == text


def test_ids_are_the_files_own(tokenizer: Tokenizer) -> None:
    """Token i of the file keeps the id i, spaces in it spelled as pieces have them; nothing is added behind it."""
    expected = [piece.replace(" ", "▁") for piece in pieces()]
    assert [tokenizer.id_to_token(id_) for id_ in range(len(expected))] == expected
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(expected)
    assert tokenizer.decode([2, 0, 1], skip_special_tokens=True) == ""
