"""The schema of `input` takes each item that the reader takes, and no other."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from frontend.dialects.openai_responses import parse_responses
from frontend.dialects.openai_responses_hosted import HOSTED_ITEMS
from frontend.errors import RequestError
from frontend.item_schemas import INPUT_SCHEMA

VALIDATOR = Draft202012Validator(INPUT_SCHEMA)
TURN = {"role": "user", "content": "Go on."}
CALL = {"type": "function_call", "call_id": "c_1", "name": "f", "arguments": "{}"}
PART = {"type": "input_text", "text": "x"}
ITEMS: list[dict[str, Any]] = [
    TURN,
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}], "phase": "x"},
    {"role": "user", "content": [PART, {"type": "input_image", "image_url": "data:x"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "x"}],
        "encrypted_content": "x",
    },
    {**CALL, "namespace": "home"},
    {"type": "function_call_output", "call_id": "c_1", "output": [PART]},
    {"type": "custom_tool_call", "call_id": "c_2", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c_1", "output": "x"},
    {"type": "additional_tools", "tools": []},
    {"type": "mcp_approval_response", "approve": True, "reason": "x"},
    {"type": "divination_call", "omen": 1},
    {"type": "divination_call_output", "omen": 1},
    *({"type": kind, "id": "c_1", "call_id": "c_1", "status": "completed"} for kind in HOSTED_ITEMS),
]
ODD: list[Any] = [None, True, 0, 1.5, "", "x", [], {}, [1], ["x"], [{}], [PART], [{"type": "logs"}], {"a": 1}]


def is_taken(item: object) -> bool:
    """Behind a call, in a history."""
    try:
        parse_responses({"input": [CALL, item, TURN]})
    except RequestError:
        return False
    return True


def changed(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Without each of its fields, and with other values in them and in those that other items have."""
    without = [{name: value for name, value in item.items() if name != left} for left in item]
    names = {*item, "id", "call_id", "name", "namespace", "server_label", "arguments", "output", "tools", "status"}
    return [*without, *({**item, name: value} for name in sorted(names) for value in ODD)]


def is_of_the_context(item: dict[str, Any]) -> bool:
    """An output of a call that did not come before, a tool that must be looked into, a reference to what is stored."""
    is_orphan = str(item.get("type")).endswith("_output") and item.get("call_id") != "c_1"
    has_tools = bool(item.get("tools"))
    is_reference = item.get("type") in (None, "item_reference") and "role" not in item
    return is_orphan or has_tools or is_reference


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.get("type", "message"))
def test_the_schema_and_the_reader_agree(item: dict[str, Any]) -> None:
    """On the item, and on each change of one of its fields."""
    assert VALIDATOR.is_valid([item])
    assert is_taken(item)
    for each in changed(item):
        if not is_of_the_context(each):
            assert VALIDATOR.is_valid([each]) == is_taken(each), each


@pytest.mark.parametrize("item", [None, 1, "x", [], {}, {"type": "mesage"}, {"type": "compaction_trigger"}, {"id": 7}])
def test_what_is_no_item_is_not_described(item: object) -> None:
    """Nor is it taken."""
    assert (VALIDATOR.is_valid([item]), is_taken(item)) == (False, False)


def test_a_text_and_a_reference_are_described() -> None:
    """The reference by its id alone, too."""
    assert VALIDATOR.is_valid("x")
    assert all(VALIDATOR.is_valid([each]) for each in ({"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}))
