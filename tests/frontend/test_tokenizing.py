"""/tokenize, /detokenize and /apply-template, in vLLM's shapes and llama.cpp's."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from frontend import tokenizing
from tests.fakes.serving import Served, serving

TEXT = "the quick fox 🦊<|im_end|>"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi fox"}]}
RENDERED = "<|im_start|>user\nhi fox<|im_end|>\n<|im_start|>assistant\n"


def oracle(served: Served, text: str) -> Any:
    """The tokenizer's own encoding, special tokens in the text read as such."""
    folder = served.engine.settings.runtime_dir
    tokenizer = Tokenizer.from_file(str(Path(folder) / "fake-model" / "tokenizer.json"))
    return tokenizer.encode(text, add_special_tokens=False)


async def test_vllms_text(runtime_dir: Path) -> None:
    """count, max_model_len, tokens, and on demand each token's spelling; under both paths."""
    async with serving(runtime_dir) as served:
        expected = oracle(served, TEXT)
        for path in ("/tokenize", "/v1/tokenize"):
            status, reply = await served.answer(path, {"prompt": TEXT, "model": "fake-model"})
            assert (status, reply["tokens"], reply["count"]) == (200, expected.ids, len(expected.ids))
            assert (reply["max_model_len"], reply["token_strs"]) == (2_048, None)
        _, reply = await served.answer("/tokenize", {"prompt": TEXT, "return_token_strs": True})
        assert reply["token_strs"] == expected.tokens


async def test_vllms_chat(runtime_dir: Path) -> None:
    """The prompt's ids of a conversation, with what a chat's fields say of it."""
    async with serving(runtime_dir) as served:
        _, reply = await served.answer("/tokenize", {**CHAT, "return_token_strs": True})
        assert reply["tokens"] == oracle(served, RENDERED).ids
        assert reply["token_strs"] == oracle(served, RENDERED).tokens
        _, reply = await served.answer("/tokenize", {**CHAT, "add_generation_prompt": False})
        assert reply["tokens"] == oracle(served, RENDERED.removesuffix("<|im_start|>assistant\n")).ids


async def test_llama_cpps_content(runtime_dir: Path) -> None:
    """tokens alone, or with pieces: text where it is text, else its bytes."""
    async with serving(runtime_dir) as served:
        assert await served.answer("/tokenize", {"content": TEXT}) == (200, {"tokens": oracle(served, TEXT).ids})
        _, reply = await served.answer("/tokenize", {"content": TEXT, "with_pieces": True})
        assert [piece["id"] for piece in reply["tokens"]] == oracle(served, TEXT).ids
        pieces = [piece["piece"] for piece in reply["tokens"]]
        assert any(isinstance(piece, list) for piece in pieces)
        data = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
        assert data.decode() == TEXT


async def test_back_to_text(runtime_dir: Path) -> None:
    """Under vLLM's name and llama.cpp's; special tokens stay."""
    async with serving(runtime_dir) as served:
        ids = oracle(served, TEXT).ids
        assert await served.answer("/detokenize", {"tokens": ids}) == (200, {"prompt": TEXT, "content": TEXT})
        assert await served.answer("/detokenize", {"tokens": []}) == (200, {"prompt": "", "content": ""})


async def test_the_template_alone(runtime_dir: Path) -> None:
    """What a chat request's prompt would be, and no row for it."""
    async with serving(runtime_dir) as served:
        assert await served.answer("/apply-template", CHAT) == (200, {"prompt": RENDERED})
        opened = {"messages": [*CHAT["messages"], {"role": "assistant", "content": "well"}]}
        _, reply = await served.answer("/apply-template", {**opened, "continue_final_message": True})
        assert reply["prompt"].endswith("<|im_start|>assistant\nwell")
        assert served.engine.submits() == []


BAD: list[tuple[str, Any, int, str]] = [
    ("/tokenize", {}, 400, "invalid_request"),
    ("/tokenize", {"prompt": "x", "content": "y"}, 400, "invalid_request"),
    ("/tokenize", {"prompt": 7}, 400, "invalid_request"),
    ("/tokenize", {"content": ["x", 5]}, 400, "invalid_request"),
    ("/tokenize", {"prompt": "x", "add_special_tokens": "no"}, 400, "invalid_request"),
    ("/tokenize", {"content": "x", "parse_special": False}, 400, "unsupported"),
    ("/tokenize", {"prompt": "x", "model": "nobody"}, 404, "model_not_found"),
    ("/tokenize", {"prompt": "x" * 1_001}, 400, "invalid_request"),
    ("/tokenize", {"messages": []}, 400, "invalid_request"),
    ("/tokenize", {"messages": [{"role": "user", "content": "x " * 501}]}, 400, "invalid_request"),
    ("/detokenize", {}, 400, "invalid_request"),
    ("/detokenize", {"tokens": "1"}, 400, "invalid_request"),
    ("/detokenize", {"tokens": [-1]}, 400, "invalid_request"),
    ("/detokenize", {"tokens": [1, 999_999]}, 400, "invalid_request"),
    ("/detokenize", {"tokens": [1] * 1_001}, 400, "invalid_request"),
    ("/apply-template", {"messages": [{"role": "wizard", "content": "x"}]}, 400, "invalid_request"),
    ("/apply-template", b"[]", 400, "invalid_request"),
]


async def test_bad_bodies(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets the envelope with its status and code; what is too long is refused before it is worked on."""
    monkeypatch.setattr(tokenizing, "MAX_CHARACTERS", 1_000)
    monkeypatch.setattr(tokenizing, "MAX_TOKENS", 1_000)
    async with serving(runtime_dir) as served:
        found: list[tuple[str, str, int, str]] = []
        for path, body, _, _ in BAD:
            status, reply = await served.answer(path, body)
            found.append((path, str(body)[:60], status, reply["error"]["code"]))
        assert found == [(path, str(body)[:60], status, code) for path, body, status, code in BAD]


async def test_unknown_fields_are_named(runtime_dir: Path) -> None:
    """As everywhere."""
    async with serving(runtime_dir) as served:
        for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]}), ("/apply-template", CHAT)):
            async with await served.post(path, {**body, "colour": "blue"}) as response:
                assert (response.status, response.headers["x-convoy-ignored"]) == (200, "colour")


async def test_long_texts_leave_the_event_loop(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one is done at once, a long one beside probes and streams."""
    threads: list[bool] = []
    original = tokenizing.msgspec.json.encode

    def recording(value: object) -> bytes:
        if isinstance(value, (tokenizing.TokenizedText, tokenizing.Detokenized)):
            threads.append(threading.current_thread() is threading.main_thread())
        return original(value)

    monkeypatch.setattr(tokenizing.msgspec.json, "encode", recording)
    async with serving(runtime_dir) as served:
        for body in ({"prompt": "x"}, {"prompt": "x" * 5_000}):
            assert (await served.answer("/tokenize", json.dumps(body).encode()))[0] == 200
        assert (await served.answer("/detokenize", {"tokens": [5] * 5_000}))[0] == 200
        assert threads == [True, False, False]
