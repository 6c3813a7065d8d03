"""bench.step_latency: each token is timed to the piece with its last character, however steps were merged."""

import json
import sys
from itertools import accumulate
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from bench import step_latency
from bench.load import LoadError
from bench.scripted import Told
from bench.step_latency import Piece, heard, latencies_ms
from tests.fakes.tokenizer_folder import build_tokenizer_folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = build_tokenizer_folder(tmp_path_factory.mktemp("tokenizer"))
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def told_of(tokenizer: Tokenizer, text: str) -> list[Told]:
    """A token a second."""
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return [Told(float(number), [id_]) for number, id_ in enumerate(ids)]


def test_a_token_is_timed_to_its_last_character(tokenizer: Tokenizer) -> None:
    """Pieces of one token, of several, and cut within one."""
    text = " fox bridge river"
    told = told_of(tokenizer, text)
    spelled = [tokenizer.decode(turn.ids) for turn in told]
    assert "".join(spelled) == text
    ends = list(accumulate(map(len, spelled)))
    for cut in range(1, len(text)):
        pieces = [Piece(100.0, text[:cut]), Piece(200.0, text[cut:])]
        expected = [(100.0 if end <= cut else 200.0) - at for at, end in enumerate(ends)]
        assert [found / 1e3 for found in latencies_ms(told, pieces, tokenizer)] == expected


def test_what_is_before_the_pieces_is_not_timed(tokenizer: Tokenizer) -> None:
    """A call's arguments are a part of what the engine told."""
    told = told_of(tokenizer, "name: fox")
    after = len("name:")
    spelled = list(accumulate(len(tokenizer.decode(turn.ids)) for turn in told))
    found = latencies_ms(told, [Piece(50.0, " fox")], tokenizer)
    assert len(found) == len([end for end in spelled if end > after])


def test_text_that_was_not_told_is_an_error(tokenizer: Tokenizer) -> None:
    """Nor is no text a result."""
    for text in ("bear", ""):
        with pytest.raises(LoadError, match="which the engine did not tell"):
            latencies_ms(told_of(tokenizer, " fox"), [Piece(1.0, text)], tokenizer)


def test_pieces_come_with_the_read_that_ends_them() -> None:
    """At every cut of the response."""
    frames = [
        {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": " fox"}}]},
        {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}]},
    ]
    chunks = [f"data: {json.dumps(frame)}\n\n".encode() for frame in frames]
    raw = b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    ends = [raw.index(chunk) + len(chunk) - 1 for chunk in chunks[1:]]
    for cut in range(1, len(raw)):
        found = heard([(1.0, raw[:cut]), (2.0, raw[cut:])])
        assert found.id == "chatcmpl-1/0"
        assert found.pieces == [
            Piece(1.0 if cut >= end else 2.0, text) for end, text in zip(ends, (" fox", "{}"), strict=True)
        ]


def test_a_refusal_is_an_error() -> None:
    """With what the frontend said."""
    with pytest.raises(LoadError, match="400 no"):
        heard([(1.0, b"HTTP/1.1 400 no\r\n\r\n")])


def test_a_run_tells_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text and arguments over real processes, every token timed."""
    model = build_tokenizer_folder(tmp_path / "model")
    words = [str(model), "--streams", "2", "--tokens", "40", "--step-ms", "2"]
    monkeypatch.setattr(sys, "argv", ["step_latency", *words])
    step_latency.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["text", "calls", "arguments"]
    assert all(" of 72 tokens" in line for line in lines[:2])
