"""A model's text side, loaded from a folder: its formats, and chats with a model that has no template of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontend.model_text import ModelText, Parsers, load_model_text
from protocol.messages import BosRule, ParserNames
from tests.fakes.serving import serving
from tests.fakes.tokenizer_folder import CHAT_TEMPLATE, build_tokenizer_folder

HI = [{"role": "user", "content": "hi fox"}]
BOS = BosRule(id=0, add=True)
TRANSCRIPT = "USER: hi fox\nASSISTANT:"
TOOLS = "{{ tools }}"
HERMES = '<tool_call>{"name"'
DEEPSEEK = "{# <｜tool▁sep｜> #}"
THINK = "</think>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer that begins texts with a token, and no template."""
    folder = build_tokenizer_folder(tmp_path / "model")
    config = {"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def loaded(folder: Path, bos: BosRule = BOS) -> ModelText:
    return load_model_text(folder, bos)


def test_a_transcript_begins_as_any_text(folder: Path) -> None:
    """A template writes the token that begins a text itself; a transcript has none in it, and gets it."""
    text = loaded(folder)
    assert text.encode_chat(TRANSCRIPT) == text.tokenizer.encode_text(TRANSCRIPT)
    assert text.encode_chat(TRANSCRIPT)[0] == 0
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert loaded(folder).encode_chat(TRANSCRIPT) == text.tokenizer.encode_rendered(TRANSCRIPT)


async def test_a_model_without_a_template_chats(runtime_dir: Path, folder: Path) -> None:
    """As with mlx_lm.server: its words, or the request's, and nothing is named as ignored."""
    asked = {"messages": HI, "max_tokens": 1}
    mapping = {"user": "You: ", "assistant": "Me: ", "stop": " / "}
    async with serving(runtime_dir, model=str(folder)) as served:
        for body, expected in (
            (asked, TRANSCRIPT),
            ({**asked, "role_mapping": mapping}, "You: hi fox / Me:"),
            ({**asked, "role_mapping": {}}, TRANSCRIPT),
        ):
            async with await served.post("/v1/chat/completions", body) as response:
                assert (response.status, response.headers.get("x-convoy-ignored")) == (200, None)
            assert served.engine.decoded(served.engine.submits()[-1]) == expected
        _, reply = await served.answer("/tokenize", {"messages": HI})
        assert reply["tokens"] == loaded(folder, BosRule()).encode_chat(TRANSCRIPT)
        await served.answer("/v1/messages", asked)
        assert served.engine.decoded(served.engine.submits()[-1]) == TRANSCRIPT


async def test_a_model_with_a_template_ignores_the_mapping_aloud(runtime_dir: Path) -> None:
    """mlx_lm.server says nothing of it."""
    body = {"messages": HI, "max_tokens": 1, "role_mapping": {"user": "U: ", "bot": "B: "}}
    async with serving(runtime_dir) as served:
        for path in ("/v1/chat/completions", "/tokenize", "/apply-template"):
            async with await served.post(path, body) as response:
                assert response.headers["x-convoy-ignored"] == "role_mapping.bot, role_mapping"
        assert served.engine.decoded(served.engine.submits()[0]).startswith("<|im_start|>user\nhi fox")


@pytest.mark.parametrize(
    ("template", "parsers", "expected"),
    [
        (CHAT_TEMPLATE, {}, ("hermes", None)),
        (CHAT_TEMPLATE, {"tools": "none"}, (None, None)),
        (CHAT_TEMPLATE + DEEPSEEK + THINK, {}, ("hermes", "think")),
        (CHAT_TEMPLATE + DEEPSEEK, {"tools": "deepseek_v31"}, ("deepseek_v31", None)),
        (TOOLS + DEEPSEEK, {}, ("deepseek_v31", None)),
        (TOOLS + HERMES + THINK, {"reasoning": "none"}, ("hermes", None)),
        (TOOLS, {}, (None, None)),
        (TOOLS, {"tools": "llama3_json", "reasoning": "think"}, ("llama3_json", "think")),
        (None, {}, ("hermes", None)),
        ({"default": THINK, "tool_use": TOOLS + DEEPSEEK}, {}, ("deepseek_v31", "think")),
        ({"default": HERMES, "tool_use": TOOLS + DEEPSEEK + THINK}, {}, ("deepseek_v31", "think")),
        ({"default": TOOLS + DEEPSEEK, "rag": TOOLS + HERMES}, {}, ("deepseek_v31", None)),
    ],
)
def test_the_formats_that_replies_are_read_in(
    tmp_path: Path, template: Any, parsers: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    """Those that were named, or that the template writes; Hermes' where it has no tools and the prompt tells them."""
    folder = build_tokenizer_folder(tmp_path)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    text = load_model_text(folder, BosRule(), parsers=Parsers(**parsers))
    assert text.parsers == ParserNames(tools=expected[0], reasoning=expected[1])


async def test_a_parser_that_the_files_name_is_used_or_told(
    runtime_dir: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """mlx-lm's name goes before what the template looks like; one that there is not is in the log and in /stats."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    for declared, read_as, unread in (("mistral", "mistral", None), ("runes", "hermes", "runes"), (7, "hermes", "7")):
        (folder / "chat_template.jinja").write_text(TOOLS + HERMES)
        (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tool_parser_type": declared}))
        caplog.clear()
        text = loaded(folder)
        assert (text.parsers.tools, text.unread_parser) == (read_as, unread)
        assert [record.message for record in caplog.records] == ["model.tool_parser_type_unknown"] * (
            unread is not None
        )
    async with serving(runtime_dir, model=str(folder)) as served:
        _, stats = await served.get("/stats")
    assert (stats["frontend"]["tool_parser"], stats["frontend"]["unread_tool_parser_type"]) == ("hermes", "7")
