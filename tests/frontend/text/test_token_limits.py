"""How few tokens a text can become: never more than it does become, and silent where that is not certain."""

from collections.abc import Callable

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, trainers

from frontend.text.token_limits import token_limits
from tests.frontend.text.tokenizer_builds import SAMPLE, byte_level_backend, metaspace_backend


def composing_backend() -> tokenizers.Tokenizer:
    """Byte-level with NFC, as Qwen's."""
    backend = byte_level_backend()
    backend.normalizer = normalizers.NFC()
    return backend


def gapped_backend() -> tokenizers.Tokenizer:
    """Byte-level without most bytes, as SmolLM2's: those vanish from a text."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    backend.train_from_iterator(SAMPLE, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    return backend


BACKENDS = [build() for build in (byte_level_backend, metaspace_backend, composing_backend, gapped_backend)]
# Where the bound could fail: what composes, what vanishes, what is long in one token.
TEXTS = st.text(max_size=80) | st.lists(
    st.sampled_from(["\u1100\u1161\u11a8", "\u03b1\u0313\u0300\u0345", "\x04", "The dog ", "\u0301"])
).map("".join)


@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_a_text_never_has_fewer_tokens(text: str) -> None:
    """For each kind of vocabulary."""
    for backend in BACKENDS:
        limits = token_limits(backend)
        assert limits is not None
        assert limits.fewest_tokens(text) <= len(backend.encode(text, add_special_tokens=False).ids)


def test_a_long_text_has_many() -> None:
    """The bound is worth something: within a factor of the longest token."""
    for backend in BACKENDS:
        limits = token_limits(backend)
        assert limits is not None
        assert limits.fewest_tokens("fox " * 10_000) > 40_000 // (limits.most_bytes + 1)
        assert limits.most_bytes <= 4 * 13


def _lowercased(backend: tokenizers.Tokenizer) -> None:
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])


def _shortened(backend: tokenizers.Tokenizer) -> None:
    backend.normalizer = normalizers.Replace("  ", " ")


def _dropping(backend: tokenizers.Tokenizer) -> None:
    split = pre_tokenizers.Split(" ", behavior="removed")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel()])


def _space_taking(backend: tokenizers.Tokenizer) -> None:
    backend.add_tokens([AddedToken("<mask>", lstrip=True)])


@pytest.mark.parametrize("change", [_lowercased, _shortened, _dropping, _space_taking])
def test_nothing_is_said_of_what_may_drop_text(change: Callable[[tokenizers.Tokenizer], None]) -> None:
    """A normalizer that strips or shortens, a split that removes, an added token that takes spaces with it."""
    backend = byte_level_backend()
    change(backend)
    assert token_limits(backend) is None


def test_nothing_is_said_of_unknown_tokens() -> None:
    """One unknown token may stand for a text of any length."""
    words = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    no_bytes = tokenizers.Tokenizer(models.BPE(vocab={"a": 0, "<unk>": 1}, merges=[], unk_token="<unk>"))
    assert token_limits(words) is None
    assert token_limits(no_bytes) is None
