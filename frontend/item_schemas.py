"""JSON schema of a Responses request's `input`: a string, or items, each type with what its reader takes.

Owns no verdict. What an item must come behind (a call before its output) is only known to the reader.
"""

from collections.abc import Mapping
from typing import Any, Final

from frontend.dialects.attachments import ATTACHMENT_TYPES
from frontend.dialects.openai_responses_hosted import CALL_ENDS, HOSTED_ITEMS
from frontend.dialects.openai_responses_items import PART_TEXTS, ROLES

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
_ARGUMENTS: Final[Schema] = {"type": ["string", "object", "null"]}
_MAYBE_BOOL: Final[Schema] = {"type": ["boolean", "null"]}
_OBJECTS: Final[Schema] = {"type": "array", "items": {"type": "object"}}


def _object(properties: Mapping[str, Schema], required: tuple[str, ...]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _of_type(kind: str, required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    properties = {"type": {"const": kind}, "id": _MAYBE_TEXT, **required, **(optional or {})}
    return _object(properties, ("type", *required))


_PART: Final[Schema] = {
    "anyOf": [
        *(_object({"type": {"const": kind}, name: _TEXT}, ("type", name)) for kind, name in PART_TEXTS.items()),
        # Where it is not asked about: a note takes its place.
        _object({"type": {"enum": [*ATTACHMENT_TYPES]}}, ("type",)),
    ]
}
_PARTS: Final[Schema] = {"type": "array", "items": _PART}
_CONTENT: Final[Schema] = {"anyOf": [_TEXT, _PARTS]}
_MAYBE_PARTS: Final[Schema] = {"anyOf": [_PARTS, {"type": "null"}]}
_MESSAGE: Final[Schema] = _object(
    {"type": {"enum": ["message", None]}, "id": _MAYBE_TEXT, "role": {"enum": [*ROLES]}, "content": _CONTENT},
    ("role", "content"),
)
_REFERENCE: Final[Schema] = {
    "type": "object",
    "properties": {"type": {"enum": ["item_reference", None]}, "id": _TEXT},
    "required": ["id"],
}
_OUTPUT: Final[Mapping[str, Schema]] = {"call_id": _TEXT, "output": _CONTENT}
_OWN: Final[Mapping[str, Schema]] = {
    "reasoning": _of_type(
        "reasoning", {}, {"content": _MAYBE_PARTS, "summary": _MAYBE_PARTS, "encrypted_content": _MAYBE_TEXT}
    ),
    "function_call": _of_type(
        "function_call", {"call_id": _TEXT, "name": _TEXT}, {"namespace": _MAYBE_TEXT, "arguments": _ARGUMENTS}
    ),
    "custom_tool_call": _of_type(
        "custom_tool_call", {"call_id": _TEXT, "name": _TEXT, "input": _TEXT}, {"namespace": _MAYBE_TEXT}
    ),
    "function_call_output": _of_type("function_call_output", _OUTPUT),
    "custom_tool_call_output": _of_type("custom_tool_call_output", _OUTPUT),
    "additional_tools": _of_type("additional_tools", {"tools": _OBJECTS}),
    "mcp_approval_response": _of_type("mcp_approval_response", {}, {"approve": _MAYBE_BOOL, "reason": _MAYBE_TEXT}),
}
_READ: Final[Mapping[str, Schema]] = {
    "name": _MAYBE_TEXT,
    "server_label": _MAYBE_TEXT,
}


def _hosted(kind: str) -> Schema:
    """Of what is told nearly anything is text; what ties and names an item is."""
    item = HOSTED_ITEMS[kind]
    read = {name: schema for name, schema in _READ.items() if name in item.fields and not item.is_quiet}
    if item.telling != "note":
        read["call_id"] = _MAYBE_TEXT
    if "arguments" in item.arguments and item.telling == "call":
        read["arguments"] = _ARGUMENTS
    if item.telling == "output" and "tools" in item.fields:
        read["tools"] = {"anyOf": [_OBJECTS, {"type": "null"}]}
    return _of_type(kind, {}, read)


_NEWER: Final[Schema] = _object(
    {
        "type": {
            "type": "string",
            "pattern": f"({'|'.join(CALL_ENDS)})$",
            "not": {"enum": [*_OWN, *HOSTED_ITEMS]},
        },
        "id": _MAYBE_TEXT,
    },
    ("type",),
)
INPUT_SCHEMA: Final[Schema] = {
    "anyOf": [
        _TEXT,
        {
            "type": "array",
            "items": {"anyOf": [_MESSAGE, *_OWN.values(), *map(_hosted, HOSTED_ITEMS), _NEWER, _REFERENCE]},
        },
    ]
}
