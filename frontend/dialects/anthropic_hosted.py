"""Blocks of tools that Anthropic's servers ran, and of MCP servers: the verdict on each field, and the text of each.

Owns no turn: which blocks may stand where, and blocks that stand in a result, are anthropic_blocks'.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from frontend.dialects.attachments import note
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, check_fields
from frontend.dialects.hosted_tools import as_error, as_told, call_note, result_note
from frontend.dialects.values import as_object, as_text, read_bool, read_text

CACHE: Final = Harmless("every prompt is kept as long as there is room")
_CALLER: Final = Harmless("every call is the model's own")
_CALL: Final[FieldTable] = {
    "type": Honoured("told as a note"),
    "id": Honoured("ties a result to its call"),
    "name": Honoured("told"),
    "input": Honoured("told"),
    "caller": _CALLER,
    "cache_control": CACHE,
}
_RESULT: Final[FieldTable] = {
    "type": Honoured("told as a note"),
    "tool_use_id": Honoured("of the call"),
    "content": Honoured("told, as far as it is text"),
    "caller": _CALLER,
    "cache_control": CACHE,
}
HOSTED_BLOCKS: Final[Mapping[str, FieldTable]] = {
    "server_tool_use": _CALL,
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "mcp_tool_use": {**_CALL, "server_name": Honoured("told with the name")},
    "mcp_tool_result": {**_RESULT, "is_error": Honoured()},
    "mcp_tool_listing": {"type": Honoured("nothing is told"), "mcp_server_name": Named(), "tools": Named(([],))},
    "compaction": {
        "type": Honoured(),
        "content": Honoured("the summary, told in its place"),
        "encrypted_content": Named(),
        "signature": Harmless("proves who wrote it"),
        "tool_changes": Named(([],)),
        "cache_control": CACHE,
    },
    "fallback": {
        "type": Honoured("nothing is told"),
        "from": Harmless("which model wrote a turn is not told"),
        "to": Harmless("which model wrote a turn is not told"),
        "trigger": Harmless("which model wrote a turn is not told"),
    },
    "container_upload": {
        "type": Honoured("a note in its place in earlier messages, else refused"),
        "file_id": Named(),
        "cache_control": CACHE,
    },
    "browser_state": {
        "type": Honoured(),
        "tabs": Honoured("told"),
        "state_changes": Honoured("told"),
        "cache_control": CACHE,
    },
}
# What a result holds, by its type: fields that are honoured are told, a line each.
_TOLD: Final = Honoured("told")
_FILES: Final = Named(([],))
_OUTPUT: Final[FieldTable] = {
    "type": Honoured(),
    "stdout": _TOLD,
    "stderr": _TOLD,
    "return_code": _TOLD,
    "content": _FILES,
}
HELD_FIELDS: Final[Mapping[str, FieldTable]] = {
    "web_search_result": {
        "type": Honoured(),
        "title": _TOLD,
        "url": _TOLD,
        "page_age": _TOLD,
        "encrypted_content": Named(),
    },
    "web_fetch_result": {"type": Honoured(), "url": _TOLD, "retrieved_at": _TOLD, "content": _TOLD},
    "code_execution_result": _OUTPUT,
    "bash_code_execution_result": _OUTPUT,
    "encrypted_code_execution_result": {**_OUTPUT, "encrypted_stdout": Named()},
    "text_editor_code_execution_view_result": {
        "type": Honoured(),
        "file_type": Harmless("its content is text or nothing"),
        "start_line": _TOLD,
        "num_lines": _TOLD,
        "total_lines": _TOLD,
        "content": _TOLD,
    },
    "text_editor_code_execution_create_result": {"type": Honoured(), "is_file_update": _TOLD},
    "text_editor_code_execution_str_replace_result": {
        "type": Honoured(),
        "old_start": _TOLD,
        "old_lines": _TOLD,
        "new_start": _TOLD,
        "new_lines": _TOLD,
        "lines": _TOLD,
    },
    "tool_search_tool_search_result": {"type": Honoured(), "tool_references": _TOLD},
    "advisor_result": {"type": Honoured(), "text": _TOLD, "stop_reason": Harmless("the text is there")},
    "advisor_redacted_result": {
        "type": Honoured(),
        "encrypted_content": Named(),
        "stop_reason": Harmless("of no text"),
    },
}
ERROR_FIELDS: Final[FieldTable] = {"type": Honoured(), "error_code": _TOLD, "error_message": _TOLD}
_USE_END: Final = "_tool_use"
_RESULT_END: Final = "_tool_result"

Block = Mapping[str, object]


def hosted_fields(kind: str) -> FieldTable | None:
    """The verdicts for a block of one of these types; those of tools that are newer than the table are like others'."""
    if kind in HOSTED_BLOCKS:
        return HOSTED_BLOCKS[kind]
    return _CALL if kind.endswith(_USE_END) else _RESULT if kind.endswith(_RESULT_END) else None


@dataclass(slots=True, eq=False)
class HostedReader:
    """The text of one block. ignored, names: of the whole conversation; names of tools by their calls' ids.

    inner: the text of blocks that stand in a result.
    """

    where: str
    ignored: dict[str, None]
    names: dict[str, str]
    inner: Callable[[object, str], str]

    def text(self, kind: str, block: Block) -> str:
        """What the model reads in its place; nothing for some. Raises RequestError."""
        match kind:
            case "mcp_tool_listing" | "fallback":
                return ""
            case "compaction":
                return read_text(block, "content", f"{self.where}.") or ""
            case "container_upload":
                return note("file")
            case "browser_state":
                return self._lines(block, HOSTED_BLOCKS[kind])
            case _ if kind.endswith("_use"):
                return self._call(block)
            case _:
                return self._result(kind, block)

    def _call(self, block: Block) -> str:
        prefix = f"{self.where}."
        parts = [read_text(block, "server_name", prefix), as_text(block.get("name"), f"{prefix}name")]
        name = ".".join(part for part in parts if part)
        self.names[as_text(block.get("id"), f"{prefix}id")] = name
        given = block.get("input")
        return call_note(name, None if given is None else as_object(given, f"{prefix}input") or None)

    def _result(self, kind: str, block: Block) -> str:
        where = f"{self.where}.tool_use_id"
        name = self.names.get(as_text(block.get("tool_use_id"), where), kind.removesuffix(_RESULT_END))
        text = self._told(block.get("content") or [])
        is_error = read_bool(block, "is_error", default=False, within=f"{self.where}.")
        return result_note(name, as_error(text) if is_error else text)

    def _told(self, value: object) -> str:
        if isinstance(value, list):
            return "\n".join(self._told(item) for item in cast(list[object], value))
        if not isinstance(value, dict):
            return as_told(value)
        held = cast(dict[str, object], value)
        kind = held.get("type")
        if not isinstance(kind, str):
            return as_told(held)
        table = HELD_FIELDS.get(kind, ERROR_FIELDS if kind.endswith("_error") else None)
        if table is None:
            return self.inner([held], f"{self.where}.content")
        names = check_fields(held, table, ".")
        self.ignored |= dict.fromkeys(f"{kind}{name}" for name in names)
        return self._lines(held, table)

    def _lines(self, held: Block, table: FieldTable) -> str:
        """A line for each field that is told and has something in it."""
        told = [name for name, rule in table.items() if isinstance(rule, Honoured) and name != "type"]
        given = {name: held[name] for name in told if held.get(name) not in (None, "", [])}
        return "\n".join(f"{name}: {self._told(value)}" for name, value in given.items())
