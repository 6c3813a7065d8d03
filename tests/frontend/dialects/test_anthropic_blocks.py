"""Content blocks: which may stand where, and the text that each becomes."""

from typing import Any

import pytest

from frontend.dialects.anthropic_blocks import ReadBlock, ReadNotes, ToolChange, read_blocks, refuse_attachments
from frontend.dialects.anthropic_signature import signature_of
from frontend.errors import RequestError
from protocol.errors import ErrorCode

TEXT = {"type": "text", "text": "word"}


def read(block: dict[str, Any], holder: str = "user", notes: ReadNotes | None = None) -> list[ReadBlock]:
    """One block."""
    return read_blocks([block], holder, "messages.0.content", notes or ReadNotes())


def refused(block: dict[str, Any], holder: str = "user") -> RequestError:
    """The error for one block."""
    with pytest.raises(RequestError) as caught:
        read(block, holder)
    return caught.value


def result(**fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", **fields}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"content": "done"}, "done"),
        ({"content": []}, ""),
        ({"content": [TEXT, TEXT], "is_error": False}, "word\nword"),
        ({"content": "no such file", "is_error": True}, "Error: no such file"),
        ({"content": "Error: no such file", "is_error": True}, "Error: no such file"),
        ({"content": "<tool_use_error>no</tool_use_error>", "is_error": True}, "<tool_use_error>no</tool_use_error>"),
        ({"is_error": True}, "Error: "),
    ],
)
def test_a_results_text(fields: dict[str, Any], expected: str) -> None:
    """A failure that its text does not tell is told."""
    assert read(result(**fields)) == [ReadBlock("tool_result", expected, id="toolu_1")]


def test_a_tool_reference_loads_a_tool() -> None:
    """Its name is the result's text, and the tool is offered from there on."""
    notes = ReadNotes()
    block = result(content=[{"type": "tool_reference", "tool_name": "look"}])
    assert read(block, notes=notes) == [ReadBlock("tool_result", "look", id="toolu_1")]
    assert notes.tool_changes == [ToolChange("look", "messages.0.content.0.content.0")]


def test_a_tool_can_be_added_by_value() -> None:
    """With its definition, as in `tools`."""
    notes = ReadNotes()
    definition = {"name": "look", "input_schema": {"type": "object"}}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
    assert read(block, "system", notes) == []
    assert notes.tool_changes == [
        ToolChange("look", "messages.0.content.0.tool.definition", is_removal=False, definition=definition)
    ]


@pytest.mark.parametrize("tool", [{"type": "mcp_tool_reference", "name": "x"}, {"name": "x"}])
def test_only_tools_of_the_request_can_be_changed(tool: dict[str, Any]) -> None:
    """A server's are not here."""
    for kind in ("tool_addition", "tool_removal"):
        assert refused({"type": kind, "tool": tool}, "system").param == "messages.0.content.0.tool.type"


def test_documents_and_search_results_are_text() -> None:
    """With title, context and source before it."""
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "body"}}
    assert read({**document, "title": "T", "context": "C"}) == [ReadBlock("text", "T\nC\nbody")]
    assert read({"type": "document", "source": {"type": "content", "content": [TEXT]}}) == [ReadBlock("text", "word")]
    found = {"type": "search_result", "title": "T", "source": "there", "content": [TEXT]}
    assert read(found) == [ReadBlock("text", "T\nthere\nword")]


@pytest.mark.parametrize("kind", ["base64", "url", "file"])
def test_documents_that_are_not_text_are_refused(kind: str) -> None:
    """By the type of their source, where they are asked about; as history they are a note, which is named."""
    block = {"type": "document", "source": {"type": kind}}
    notes = ReadNotes()
    assert read(block, notes=notes) == [ReadBlock("text", "[document omitted: this model reads text only]")]
    assert list(notes.ignored) == ["document.source"]
    with pytest.raises(RequestError) as caught:
        refuse_attachments([TEXT, block], "messages.0.content")
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "messages.0.content.1.source")
    assert f'"{kind}"' in caught.value.message


@pytest.mark.parametrize("holder", ["user", "tool_result"])
@pytest.mark.parametrize("kind", ["video", "web_searched", "x" * 200])
def test_other_blocks_are_refused_by_their_type(kind: str, holder: str) -> None:
    """What it holds is not known."""
    block = {"type": kind, "source": {}}
    error = refused(result(content=[block]) if holder == "tool_result" else block)
    place = "messages.0.content.0.content.0" if holder == "tool_result" else "messages.0.content.0"
    assert (error.code, error.param) == (ErrorCode.UNSUPPORTED, place)
    assert f'"{kind[:70]}' in error.message
    assert len(error.message) < 250


@pytest.mark.parametrize(
    ("kind", "holder"),
    [("tool_result", "assistant"), ("thinking", "user"), ("tool_use", "user"), ("document", "system")],
)
def test_a_block_in_the_wrong_turn_is_refused(kind: str, holder: str) -> None:
    """The error says which may stand there."""
    error = refused({"type": kind}, holder)
    assert (error.code, error.param) == (ErrorCode.INVALID_REQUEST, "messages.0.content.0")
    assert "text" in error.message


def test_reasoning_comes_back_from_where_it_was_hidden() -> None:
    """A block without its text has it in the signature; another server's signature has none."""
    for signature, expected in ((signature_of("why 🦊"), "why 🦊"), ("EqQBCg", ""), ("convoy:%%", ""), (None, "")):
        block = {"type": "thinking", "thinking": "", "signature": signature}
        assert read(block, "assistant") == [ReadBlock("thinking", expected)]
    shown = {"type": "thinking", "thinking": "seen", "signature": signature_of("why")}
    assert read(shown, "assistant") == [ReadBlock("thinking", "seen")]


def test_reasoning_that_only_others_can_read_is_named() -> None:
    """It adds nothing to the prompt."""
    notes = ReadNotes()
    assert read({"type": "redacted_thinking", "data": "xx"}, "assistant", notes) == []
    assert list(notes.ignored) == ["redacted_thinking.data"]


@pytest.mark.parametrize(
    ("block", "holder", "place"),
    [
        (result(tool_use_id=7), "user", "tool_use_id"),
        (result(content=7), "user", "content"),
        (result(is_error="yes"), "user", "is_error"),
        ({"type": "tool_use", "name": "n", "input": {}}, "assistant", "id"),
        ({"type": "tool_use", "id": "i", "name": "n", "input": "{}"}, "assistant", "input"),
        ({"type": "thinking", "signature": "x"}, "assistant", "thinking"),
        ({"type": "thinking", "thinking": "", "signature": 7}, "assistant", "signature"),
        ({"type": "document"}, "user", "source"),
    ],
)
def test_a_wrong_value_is_named_by_its_place(block: dict[str, Any], holder: str, place: str) -> None:
    """Down to the field."""
    assert refused(block, holder).param == f"messages.0.content.0.{place}"
