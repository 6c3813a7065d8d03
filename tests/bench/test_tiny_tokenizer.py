"""The tiny tokenizer is byte-complete, has ChatML markers, and renders turns."""

import json
from pathlib import Path

import jinja2
import pytest
from tokenizers import Tokenizer

from bench.tiny_tokenizer import write_tiny_tokenizer


@pytest.mark.parametrize("text", ["the ether thinner", "naïve café 日本語 🙂\n\t", "<|im_start|>user\nhi<|im_end|>"])
def test_any_text_survives(tmp_path: Path, text: str) -> None:
    """Decoding what was encoded gives the text back, bytes and markers too."""
    write_tiny_tokenizer(tmp_path, 512)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_markers_come_first_and_merges_are_used(tmp_path: Path) -> None:
    """ChatML markers are ids 0 to 2 and common pairs are one token."""
    write_tiny_tokenizer(tmp_path, 512)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 512
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").ids == [0, 1, 2]
    assert len(tokenizer.encode("tata").ids) == 2


@pytest.mark.parametrize("size", [258, 962])
def test_an_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    """The error names the size and what is possible."""
    with pytest.raises(ValueError, match=f"vocabulary_size {size}: a tiny tokenizer has 259 to 961 tokens"):
        write_tiny_tokenizer(tmp_path, size)


def test_the_template_renders_chatml(tmp_path: Path) -> None:
    """A turn is framed by markers and the assistant's is opened."""
    write_tiny_tokenizer(tmp_path, 259)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    template = jinja2.Environment(autoescape=False).from_string(settings["chat_template"])
    rendered = template.render(messages=[{"role": "user", "content": "hi"}], add_generation_prompt=True)
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
