"""Items of a Responses conversation as they are stored: what references stand for, and how items are listed.

Owns no word that the model reads.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from frontend.dialects.fields import FieldTable, Honoured
from frontend.dialects.openai_responses_hosted import Item
from frontend.dialects.values import as_list, as_object, as_text, shown
from frontend.errors import HttpErrorCode, RequestError

REFERENCE_FIELDS: Final[FieldTable] = {"type": Honoured(), "id": Honoured("of an item that is stored")}
_ID_PREFIXES: Final[Mapping[str, str]] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}


def item_type(item: Item) -> object:
    """The type, which OpenAI lets a message and a reference leave out."""
    kind = item.get("type")
    if kind is not None:
        return kind
    return "message" if "role" in item else "item_reference" if item and set(item) <= set(REFERENCE_FIELDS) else None


def input_items(value: object) -> list[dict[str, Any]]:
    """A body's `input` as items: a string is a user's message. Raises RequestError."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    items = as_list(value, "input", "a string or an array of items")
    return [as_object(item, f"input[{index}]") for index, item in enumerate(items)]


def referenced_ids(items: Sequence[Item]) -> list[str]:
    """The ids of the stored items that the items stand for."""
    return [
        as_text(item.get("id"), f"input[{index}].id")
        for index, item in enumerate(items)
        if item_type(item) == "item_reference"
    ]


def resolved(items: Sequence[dict[str, Any]], references: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with each reference replaced. Raises RequestError for one whose item is not stored."""
    return [
        _referenced(item, f"input[{index}]", references) if item_type(item) == "item_reference" else item
        for index, item in enumerate(items)
    ]


def _referenced(item: Item, where: str, references: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    id_ = as_text(item.get("id"), f"{where}.id")
    found = references.get(id_)
    if found is None:
        raise RequestError(
            HttpErrorCode.NOT_FOUND,
            f"`{where}`: no item with the id {shown(id_)} is stored; send the item itself, "
            "or leave `store` on in the request that makes it",
            where,
        )
    return found


def named_items(items: Sequence[Item], response_id: str) -> list[dict[str, Any]]:
    """The items as they are stored and listed: each with a type, an id, a status, and its text in parts."""
    hexadecimal = response_id.partition("_")[2]
    return [_named_item(item, f"{hexadecimal}_in{index}") for index, item in enumerate(items)]


def _named_item(item: Item, rest_of_id: str) -> dict[str, Any]:
    kind = item_type(item)
    named: dict[str, Any] = {"type": kind, "status": "completed", **item}
    if not named.get("id"):
        named["id"] = f"{_ID_PREFIXES.get(str(kind), 'item')}_{rest_of_id}"
    text = item.get("content")
    if kind == "message" and isinstance(text, str):
        is_output = item.get("role") == "assistant"
        named["content"] = [
            {"type": "output_text", "text": text, "annotations": []}
            if is_output
            else {"type": "input_text", "text": text}
        ]
    return named
