"""What a prompt looks like when it is repeated."""

from collections.abc import Callable
from pathlib import Path

import pytest

from frontend.dialects.base import AskedLogprobs, Generation, Prompt, TextPrompt, TokensPrompt
from frontend.echo import PromptEcho, prompt_echoes
from frontend.model_text import ModelText
from frontend.text.template import load_template
from frontend.text.token_bytes import TokenBytes
from frontend.text.tokenizer import Tokenizer
from tests.frontend.text.tokenizer_builds import byte_level_tokenizer, metaspace_tokenizer

BOTH = pytest.mark.parametrize("build", [byte_level_tokenizer, metaspace_tokenizer])
Build = Callable[[Path], Tokenizer]


def echo_of(tokenizer: Tokenizer, prompt: Prompt, ids: list[int], **fields: bool) -> PromptEcho:
    """With the beginnings of its tokens."""
    generation = Generation(model=None, prompts=(prompt,), has_echo=True, logprobs=AskedLogprobs(), **fields)  # type: ignore[arg-type]
    [echo] = prompt_echoes(
        generation, [ids], ModelText(tokenizer, load_template(tokenizer), TokenBytes(tokenizer), None)
    )
    return echo


@BOTH
def test_a_text_is_repeated_as_it_was_sent(tmp_path: Path, build: Build) -> None:
    """A BOS that the tokenizer put before it has no text in it; every other token begins where its bytes are."""
    tokenizer = build(tmp_path)
    text = "The quick fox 漢 END"
    ids = tokenizer.encode_text(text)
    echo = echo_of(tokenizer, TextPrompt(text), ids)
    token_bytes = TokenBytes(tokenizer)
    assert (echo.text, list(echo.ids)) == (text, ids)
    for id_, start in zip(ids, echo.starts, strict=True):
        data = token_bytes.of(id_)
        is_written = data.isascii() and id_ not in tokenizer.special_ids
        assert not is_written or text.startswith(data.decode().lstrip(), start + (start > 0 and data[:1] == b" "))
    assert list(echo.starts) == sorted(echo.starts)


@BOTH
def test_special_tokens_in_a_text_count(tmp_path: Path, build: Build) -> None:
    """One that the client wrote is text like any other."""
    tokenizer = build(tmp_path)
    name = tokenizer.eos_token
    assert name is not None
    ids = tokenizer.encode_rendered(f"{name}fox")
    echo = echo_of(tokenizer, TextPrompt(f"{name}fox"), ids)
    assert echo.starts[0] == 0
    assert echo.starts[1] == len(name)


@pytest.mark.parametrize("skip", [True, False])
def test_ids_are_repeated_as_their_text(tmp_path: Path, skip: bool) -> None:
    """With special tokens only where the request wants them."""
    tokenizer = byte_level_tokenizer(tmp_path)
    ids = tokenizer.encode_rendered("fox<|im_end|>dog")
    echo = echo_of(tokenizer, TokensPrompt(tuple(ids)), ids, skip_special_tokens=skip)
    assert echo.text == ("foxdog" if skip else "fox<|im_end|>dog")
    assert echo.starts[-1] == echo.text.index("g" if echo.text.endswith("dog") else "")


def test_nothing_is_repeated_unasked(tmp_path: Path) -> None:
    """And without log-probabilities no token is looked at."""
    tokenizer = byte_level_tokenizer(tmp_path)
    text = ModelText(tokenizer, load_template(tokenizer), TokenBytes(tokenizer), None)
    prompt = TextPrompt("fox")
    assert prompt_echoes(Generation(model=None, prompts=(prompt,)), [[1]], text) == []
    assert prompt_echoes(Generation(model=None, prompts=(prompt,), has_echo=True), [[1]], text) == [PromptEcho("fox")]
