"""The tokenizer that is built from GGUF metadata."""

from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer

from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_tokenizer import build_tokenizer, tokenizer_config
from tests.engine.ctl.tiny_gguf import TEMPLATE, TinyGguf, tokens


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    """The tiny file's metadata."""
    TinyGguf().write(tmp_path / "tiny.gguf")
    return Metadata(gguf.GGUFReader(tmp_path / "tiny.gguf"))


@pytest.fixture
def tokenizer(metadata: Metadata) -> Tokenizer:
    """The tiny file's tokenizer."""
    return build_tokenizer(metadata, tokens())


def test_merges_apply_in_order_and_digits_stand_alone(tokenizer: Tokenizer) -> None:
    """smollm splits every digit off, although the merge `1 2` exists."""
    assert tokenizer.encode("hello 12").tokens == ["hello", "Ġ", "1", "2"]


@pytest.mark.parametrize("text", ["hello world", "  two  spaces\n\ttab", "漢字 😀 e\u0301", "it's 2026!", ""])
def test_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """A byte-level tokenizer loses nothing."""
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_special_tokens_are_single_ids_and_are_skipped_in_text(tokenizer: Tokenizer) -> None:
    """The chat markers must never be spelled out in bytes."""
    encoded = tokenizer.encode("<|im_start|>hello<|im_end|>")
    assert encoded.tokens == ["<|im_start|>", "hello", "<|im_end|>"]
    assert encoded.ids[0] == 1
    assert encoded.ids[-1] == 2
    assert tokenizer.decode(encoded.ids) == "hello"


def test_ids_are_the_files_own(tokenizer: Tokenizer) -> None:
    """Token i of the file keeps the id i; nothing is added behind it."""
    assert [tokenizer.id_to_token(id_) for id_ in range(len(tokens()))] == tokens()
    assert tokenizer.get_vocab_size(with_added_tokens=True) == len(tokens())


def test_configuration_names_the_special_tokens(metadata: Metadata) -> None:
    """bos, eos, unk and pad by their text, and the template unchanged."""
    config = tokenizer_config(metadata, tokens())
    names = ["bos_token", "eos_token", "unk_token", "pad_token"]
    assert [config[name] for name in names] == ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>"]
    assert (config["chat_template"], config["model_max_length"], config["add_bos_token"]) == (TEMPLATE, 512, False)
