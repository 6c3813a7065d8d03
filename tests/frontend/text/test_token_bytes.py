"""Single tokens as bytes: joined they are the text, whichever way the vocabulary spells them."""

from pathlib import Path

import pytest

from frontend.text.token_bytes import TokenBytes
from tests.frontend.text.tokenizer_builds import byte_level_tokenizer, metaspace_tokenizer

TEXT = "The quick 🦊 and 漢字,\n\tnaïve e\u0301"


@pytest.mark.parametrize("build", [byte_level_tokenizer, metaspace_tokenizer])
def test_joined_bytes_are_the_text(tmp_path: Path, build: type) -> None:
    """With sentencepiece's leading space, which only the whole text's beginning loses."""
    tokenizer = build(tmp_path)
    token_bytes = TokenBytes(tokenizer)
    ids = tokenizer.encode_rendered(TEXT)
    joined = b"".join(token_bytes.of(id_) for id_ in ids)
    assert joined.decode().removeprefix(" ") == TEXT
    assert any(len(token_bytes.of(id_)) == 1 and token_bytes.of(id_)[0] > 127 for id_ in ids)


@pytest.mark.parametrize(("build", "special"), [(byte_level_tokenizer, "<|im_end|>"), (metaspace_tokenizer, "</s>")])
def test_special_tokens_are_their_names(tmp_path: Path, build: type, special: str) -> None:
    """And an id that the tokenizer does not have is nothing."""
    tokenizer = build(tmp_path)
    [id_] = tokenizer.encode_rendered(special)[-1:]
    assert TokenBytes(tokenizer).of(id_) == special.encode()
    assert TokenBytes(tokenizer).of(99_999) == b""
