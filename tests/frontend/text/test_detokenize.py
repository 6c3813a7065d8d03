"""Detokenizer: joined pieces are the tokenizer's own text, for any ids, and nothing is held for long."""

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from frontend.text.detokenize import MAX_HELD_TOKENS, Detokenizer
from frontend.text.tokenizer import Tokenizer
from protocol.messages import BosRule

RELAXED = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = [
    "Hello, world",
    " leading and trailing ",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈 done",
    "漢字かな混じり文",
    "e\u0301a\u0308 combining n\u0303",
    "\n\n\ttabs  and   spaces",
    "mixed 😀a漢b\u0301",
    "",
]


def pieces(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> list[str]:
    """One piece per token, and the rest."""
    detokenizer = Detokenizer(tokenizer, tokenizer.special_ids if skip else frozenset())
    return [detokenizer.feed([id_]) for id_ in ids] + [detokenizer.finish()]


def broken_runs_aside(tokenizer: Tokenizer, ids: list[int]) -> str:
    """What tokenizer.decode says, but a byte run that turns invalid keeps the characters completed before."""
    text, run = tokenizer.decode(ids, True), b""
    kept: list[tuple[str, str]] = []
    for id_ in [*ids, None]:
        spelling = tokenizer.token_text(id_) if id_ is not None else ""
        if spelling is None or id_ in tokenizer.special_ids:
            continue
        if len(spelling) == 6 and spelling.startswith("<0x"):
            run += bytes([int(spelling[3:5], 16)])
            continue
        if run:
            try:
                run.decode()
            except UnicodeDecodeError as error:
                whole = run[: error.start].decode()
                kept.append(("\ufffd" * len(run), whole + "\ufffd" * (len(run) - error.start)))
        run = b""
    at, parts = 0, []
    for told, ours in kept:
        start = text.index(told, at)
        parts += [text[at:start], ours]
        at = start + len(told)
    return "".join([*parts, text[at:]])


@pytest.mark.parametrize("text", TEXTS)
def test_encoded_text_comes_back_whole(tokenizer: Tokenizer, text: str) -> None:
    """Token by token, the text is exactly what decoding all ids at once gives."""
    ids = tokenizer.encode_rendered(text)
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids, True)
    assert tokenizer.decode(ids, True) == text


@pytest.mark.parametrize("text", TEXTS)
def test_no_piece_holds_half_a_character(tokenizer: Tokenizer, text: str) -> None:
    """No U+FFFD is in any piece of a text that has none."""
    ids = tokenizer.encode_rendered(text)
    assert [piece for piece in pieces(tokenizer, ids) if "\ufffd" in piece] == []


@pytest.mark.parametrize("text", TEXTS)
def test_every_split_gives_the_same_text(tokenizer: Tokenizer, text: str) -> None:
    """Where the ids are cut makes no difference."""
    ids = tokenizer.encode_rendered(text)
    for cut in range(len(ids) + 1):
        detokenizer = Detokenizer(tokenizer, tokenizer.special_ids)
        joined = detokenizer.feed(ids[:cut]) + detokenizer.feed(ids[cut:]) + detokenizer.finish()
        assert joined == text


@RELAXED
@given(data=st.data(), skip=st.booleans())
def test_byte_level_equals_decode_for_any_ids(byte_level: Tokenizer, data: st.DataObject, skip: bool) -> None:
    """Invalid byte sequences, special tokens and added tokens included."""
    ids = data.draw(st.lists(st.integers(0, byte_level.vocabulary_size + 3), max_size=40))
    assert "".join(pieces(byte_level, ids, skip)) == byte_level.decode(ids, skip)


@RELAXED
@given(data=st.data())
def test_byte_level_equals_decode_for_lone_bytes(byte_level: Tokenizer, data: st.DataObject) -> None:
    """Single-byte tokens only: nearly every sequence is invalid somewhere."""
    lone = [id_ for id_ in range(byte_level.vocabulary_size) if len(byte_level.token_text(id_) or "") == 1]
    ids = data.draw(st.lists(st.sampled_from(lone), max_size=30))
    assert "".join(pieces(byte_level, ids)) == byte_level.decode(ids, True)


@RELAXED
@given(data=st.data())
def test_metaspace_equals_decode_for_any_ids(metaspace: Tokenizer, data: st.DataObject) -> None:
    """Equal but for characters completed before their byte run turned invalid: those were sent already."""
    ids = data.draw(st.lists(st.integers(0, metaspace.vocabulary_size + 3), max_size=40))
    assert "".join(pieces(metaspace, ids)) == broken_runs_aside(metaspace, ids)


@RELAXED
@given(text=st.text(max_size=40))
def test_any_text_comes_back_whole(byte_level: Tokenizer, metaspace: Tokenizer, text: str) -> None:
    """Both families, any Unicode text."""
    for tokenizer in (byte_level, metaspace):
        ids = tokenizer.encode_rendered(text)
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids, True)


@RELAXED
@given(data=st.data())
def test_text_is_never_held_long(byte_level: Tokenizer, metaspace: Tokenizer, data: st.DataObject) -> None:
    """What a stream still holds after any token is at most one unfinished character."""
    for tokenizer in (byte_level, metaspace):
        ids = data.draw(st.lists(st.integers(3, tokenizer.vocabulary_size - 1), min_size=1, max_size=30))
        detokenizer = Detokenizer(tokenizer, tokenizer.special_ids)
        detokenizer.feed(ids)
        assert len(detokenizer.finish()) <= 3


def test_split_special_token_text_is_kept_when_asked(byte_level: Tokenizer) -> None:
    """skip_special_tokens=False shows special tokens as they are spelled."""
    ids = byte_level.encode_rendered("<|im_start|>user hello<|im_end|>")
    assert "".join(pieces(byte_level, ids, skip=False)) == "<|im_start|>user hello<|im_end|>"
    assert "".join(pieces(byte_level, ids, skip=True)) == "user hello"


def test_space_after_a_skipped_token_stays(metaspace: Tokenizer) -> None:
    """A word keeps its leading space when the token before it has no text."""
    words = metaspace.encode_rendered("fox the dog")
    ids = [1, *words[:1], 2, *words[1:]]
    assert "".join(pieces(metaspace, ids)) == metaspace.decode(ids, True)


def test_unknown_decoders_hold_half_characters_for_a_bounded_time() -> None:
    """A decoder that is not known by kind is asked with context, and a stream of bad bytes does not stand still."""
    vocabulary = {"Ã": 0, "©": 1, "a": 2}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    tokenizer = Tokenizer(backend, BosRule(), {})
    assert pieces(tokenizer, [2, 0, 1, 2]) == ["a", "", "é", "a", ""]
    detokenizer = Detokenizer(tokenizer, tokenizer.special_ids)
    assert detokenizer.feed([0] * MAX_HELD_TOKENS) == "\ufffd" * MAX_HELD_TOKENS


def test_a_replacement_character_of_the_vocabulary_is_text() -> None:
    """A token that spells U+FFFD itself is told before whatever follows, a byte token too."""
    backend = tokenizers.Tokenizer(models.BPE(vocab={"\ufffd": 0, "<0xC3>": 1, "<0xA9>": 2, "a": 3}, merges=[]))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = Tokenizer(backend, BosRule(), {})
    for ids in ([0, 1, 2], [0, 3], [0, 1, 3], [3, 0, 1, 2, 0, 2], [0]):
        assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids, True)


def test_a_token_costs_the_same_late_in_a_text(metaspace: Tokenizer) -> None:
    """However much text came before, a token decodes a handful of ids."""
    asked: list[int] = []

    class Counting(Tokenizer):
        """Records how many ids each decode is asked for."""

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            asked.append(len(ids))
            return super().decode(ids, skip_special_tokens)

    counting = Counting(metaspace._backend, BosRule(), metaspace.special_tokens)
    ids = metaspace.encode_rendered("the fox 😀 jumps over the dog " * 50)
    pieces(counting, ids)
    assert max(asked) <= 2 * MAX_HELD_TOKENS
    assert len(asked) <= 3 * len(ids) + 3
