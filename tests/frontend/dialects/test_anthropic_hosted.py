"""Blocks of tools that other servers ran: each kind is told to the model, and no conversation ends by one."""

from typing import Any

import pytest

from frontend.dialects.anthropic import parse_message
from frontend.dialects.anthropic_hosted import HELD_FIELDS, HOSTED_BLOCKS
from frontend.dialects.base import ChatPrompt, Generation
from frontend.errors import RequestError
from protocol.errors import ErrorCode

ASKED = {"role": "user", "content": "Go on."}
TEXT = {"type": "text", "text": "It rains."}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
CALLED = '[called web_search: {"query":"rain"}]'
LOOK = {"name": "look", "input_schema": {"type": "object"}, "defer_loading": True}


def parsed(*blocks: dict[str, Any], **fields: Any) -> Generation:
    """A conversation in which one turn has these blocks, and the user says more."""
    return parse_message({"messages": [ASKED, {"role": "assistant", "content": list(blocks)}, ASKED], **fields})


def words(generation: Generation) -> str:
    """Of the turn with the blocks."""
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    return str(prompt.messages[1]["content"])


def result(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    """What a call came to."""
    return {"type": kind, "tool_use_id": "srvtoolu_1", "content": content, **fields}


def test_a_search_is_told_with_what_it_found() -> None:
    """On lines of their own, between the words before and after; what only Anthropic can read is named."""
    page = {
        "type": "web_search_result",
        "title": "Oslo",
        "url": "http://x",
        "page_age": None,
        "encrypted_content": "zz",
    }
    generation = parsed(TEXT, USE, result("web_search_tool_result", [page, page]), TEXT)
    page_told = "title: Oslo\nurl: http://x"
    assert words(generation) == f"It rains.\n{CALLED}\n[result of web_search: {page_told}\n{page_told}]\nIt rains."
    assert generation.ignored == ("web_search_result.encrypted_content",)


DOCUMENT = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "Rain."}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
RAN = {"stdout": "1", "stderr": "", "return_code": 0, "content": []}
EDITED = "text_editor_code_execution"
# By the type of what is held: it, the result's type, and its text.
HELD: dict[str, tuple[dict[str, Any], str, str]] = {
    "web_search_result": (
        {"title": "Oslo", "url": "u", "encrypted_content": "z"},
        "web_search_tool_result",
        "title: Oslo\nurl: u",
    ),
    "web_fetch_result": ({"url": "u", "content": DOCUMENT}, "web_fetch_tool_result", "url: u\ncontent: T\nRain."),
    "code_execution_result": (RAN, "code_execution_tool_result", "stdout: 1\nreturn_code: 0"),
    "bash_code_execution_result": (RAN, "bash_code_execution_tool_result", "stdout: 1\nreturn_code: 0"),
    "encrypted_code_execution_result": (
        {"encrypted_stdout": "z", "stderr": "no", "return_code": 1, "content": []},
        "code_execution_tool_result",
        "stderr: no\nreturn_code: 1",
    ),
    f"{EDITED}_view_result": (
        {"content": "a\nb", "file_type": "text", "num_lines": 2},
        f"{EDITED}_tool_result",
        "num_lines: 2\ncontent: a\nb",
    ),
    f"{EDITED}_create_result": ({"is_file_update": False}, f"{EDITED}_tool_result", "is_file_update: false"),
    f"{EDITED}_str_replace_result": (
        {"lines": ["-a", "+b"], "old_start": 3},
        f"{EDITED}_tool_result",
        "old_start: 3\nlines: -a\n+b",
    ),
    "tool_search_tool_search_result": (
        {"tool_references": [{"type": "tool_reference", "tool_name": "look"}]},
        "tool_search_tool_result",
        "tool_references: look",
    ),
    "advisor_result": ({"text": "Wait."}, "advisor_tool_result", "text: Wait."),
    "advisor_redacted_result": ({"encrypted_content": "z"}, "advisor_tool_result", ""),
}


def test_every_kind_of_result_is_told() -> None:
    """Each type in the table is in the next test."""
    assert {*HELD} == {*HELD_FIELDS}


@pytest.mark.parametrize("kind", HELD)
def test_what_a_result_holds(kind: str) -> None:
    """A line for each field with something in it, whether it stands alone or in a list."""
    fields, holder, text = HELD[kind]
    held = {"type": kind, **fields}
    for content in (held, [held]):
        generation = parsed(USE, result(holder, content))
        assert words(generation) == f"{CALLED}\n[result of web_search: {text}]\n"
        encrypted = next((name for name in fields if name.startswith("encrypted")), None)
        assert generation.ignored == (() if encrypted is None else (f"{kind}.{encrypted}",))


def test_errors_and_unknown_results_are_told_too() -> None:
    """By their code; in a form that is not known as JSON; a page that is no text as a note."""
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    assert "[result of web_search: error_code: unavailable]" in words(parsed(USE, result("x_tool_result", failed)))
    assert '[result of web_search: {"a":1}]' in words(parsed(USE, result("web_fetch_tool_result", {"a": 1})))
    fetched = {"type": "web_fetch_result", "url": "u", "content": PDF}
    generation = parsed(USE, result("web_fetch_tool_result", fetched))
    assert "content: [document omitted: this model reads text only]" in words(generation)
    assert generation.ignored == ("document.source",)


def test_mcp_calls_have_their_servers_name() -> None:
    """A failure is told; a result whose call was left out has the kind's name."""
    use = {"type": "mcp_tool_use", "id": "srvtoolu_1", "name": "issues", "server_name": "github", "input": {}}
    failed = result("mcp_tool_result", [TEXT], is_error=True)
    assert words(parsed(use, failed)) == "[called github.issues]\n[result of github.issues: Error: It rains.]\n"
    assert words(parsed(result("mcp_tool_result", "none"))) == "[result of mcp: none]\n"


@pytest.mark.parametrize(
    ("block", "expected", "named"),
    [
        ({"type": "mcp_tool_listing", "mcp_server_name": "x", "tools": [{}]}, "", ("mcp_server_name", "tools")),
        (
            {"type": "compaction", "content": "It rained.", "encrypted_content": "z"},
            "It rained.\n",
            ("encrypted_content",),
        ),
        ({"type": "compaction", "content": None}, "", ()),
        ({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}, "", ()),
        (
            {"type": "divination_tool_use", "id": "d", "name": "omen", "input": {"of": 1}},
            '[called omen: {"of":1}]\n',
            (),
        ),
        ({"type": "divination_tool_result", "tool_use_id": "d", "content": []}, "[result of divination: ]\n", ()),
    ],
)
def test_other_blocks_of_the_model(block: dict[str, Any], expected: str, named: tuple[str, ...]) -> None:
    """Also of tools that are newer than this server."""
    generation = parsed(block, TEXT)
    assert words(generation) == f"{expected}It rains."
    assert generation.ignored == tuple(f"{block['type']}.{name}" for name in named)


def test_a_search_of_tools_offers_what_it_found() -> None:
    """As a tool_reference anywhere else does."""
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "look"}],
    }
    generation = parsed(USE, result("tool_search_tool_result", found), tools=[LOOK])
    assert generation.tools is not None
    assert [tool.name for tool in generation.tools.tools] == ["look"]
    assert parsed(TEXT, tools=[LOOK]).tools is None


def test_results_may_stand_in_the_users_turn() -> None:
    """As some clients send them."""
    messages = [{"role": "user", "content": [result("web_search_tool_result", "none"), TEXT]}]
    (prompt,) = parse_message({"messages": messages}).prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == ({"role": "user", "content": "[result of web_search: none]\nIt rains."},)


def test_the_state_of_a_browser_is_told_in_a_result() -> None:
    """As JSON: its own words are Anthropic's."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "click", "input": {}}
    state = {"type": "browser_state", "tabs": [{"url": "u", "active": True}]}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [TEXT, state]}
    generation = parse_message(
        {"messages": [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]}
    )
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[1]["content"] == 'It rains.\ntabs: {"url":"u","active":true}'


def test_a_file_for_a_container_is_refused_where_it_is_asked_about() -> None:
    """A note before that."""
    block = {"type": "container_upload", "file_id": "f"}
    messages = [{"role": "user", "content": [TEXT, block]}]
    with pytest.raises(RequestError) as caught:
        parse_message({"messages": messages})
    assert (caught.value.code, caught.value.param) == (ErrorCode.UNSUPPORTED, "messages.0.content.1")
    answered = [*messages, {"role": "assistant", "content": "Well."}, ASKED]
    generation = parse_message({"messages": answered})
    assert generation.ignored == ("container_upload.file_id",)
    (prompt,) = generation.prompts
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[0]["content"] == "It rains.\n[file omitted: this model reads text only]"


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({**USE, "name": 7}, "name"),
        ({**USE, "id": None}, "id"),
        ({**USE, "input": "x"}, "input"),
        ({"type": "mcp_tool_result", "tool_use_id": 7}, "tool_use_id"),
        (result("mcp_tool_result", "x", is_error="yes"), "is_error"),
        ({"type": "compaction", "content": 7}, "content"),
    ],
)
def test_malformed_blocks_are_named(block: dict[str, Any], place: str) -> None:
    """Down to the field."""
    with pytest.raises(RequestError) as caught:
        parsed(block)
    assert caught.value.param == f"messages.1.content.0.{place}"


@pytest.mark.parametrize("kind", sorted(HOSTED_BLOCKS))
def test_no_kind_ends_a_conversation(kind: str) -> None:
    """Wherever it may stand in a history, with nothing but what it must have."""
    block = {"type": kind, "id": "i", "tool_use_id": "i", "name": "n"}
    if kind == "browser_state":
        turns = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [block]}]}]
    else:
        turns = [{"role": "user" if kind == "container_upload" else "assistant", "content": [block]}]
    assert parse_message({"messages": [*turns, {"role": "assistant", "content": "Well."}, ASKED]}).prompts
