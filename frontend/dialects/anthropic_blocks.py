"""One content block of Anthropic's messages: which types there are, in whose turn, and the text that each becomes.

Owns no order: what a turn's blocks become together is anthropic_messages'.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from frontend.dialects.anthropic_hosted import CACHE, HOSTED_BLOCKS, HostedReader, hosted_fields
from frontend.dialects.anthropic_signature import signed_reasoning
from frontend.dialects.attachments import note
from frontend.dialects.fields import MAX_NAME_LENGTH, FieldTable, Harmless, Honoured, Named, check_fields
from frontend.dialects.hosted_tools import as_error
from frontend.dialects.values import as_list, as_object, as_text, read_bool, read_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

BLOCK_FIELDS: Final[Mapping[str, FieldTable]] = {
    "text": {"type": Honoured(), "text": Honoured(), "cache_control": CACHE, "citations": Named(([],))},
    "image": {
        "type": Honoured("a note in its place in earlier messages and results of tools, else refused"),
        "source": Named(),
        "cache_control": CACHE,
    },
    "thinking": {
        "type": Honoured(),
        "thinking": Honoured("given to the template as reasoning"),
        "signature": Honoured("has the reasoning of a block that was sent with display omitted"),
        "cache_control": CACHE,
    },
    "redacted_thinking": {"type": Honoured(), "data": Named(), "cache_control": CACHE},
    "tool_use": {
        "type": Honoured(),
        "id": Honoured(),
        "name": Honoured(),
        "input": Honoured("given to the template as an object"),
        "caller": Harmless("every call is the model's own"),
        "cache_control": CACHE,
    },
    "tool_result": {
        "type": Honoured(),
        "tool_use_id": Honoured("given to the template, with the tool's name"),
        "content": Honoured("a string or blocks of text; `Error: ` before it where is_error is not told in it"),
        "is_error": Honoured(),
        "cache_control": CACHE,
    },
    "tool_reference": {
        "type": Honoured(),
        "tool_name": Honoured("puts a tool with defer_loading into the prompt, and its name into the text"),
        "cache_control": CACHE,
    },
    "tool_addition": {
        "type": Honoured(),
        "tool": Honoured("a tool_reference or a tool_definition"),
        "cache_control": CACHE,
    },
    "tool_removal": {"type": Honoured(), "tool": Honoured("a tool_reference"), "cache_control": CACHE},
    "document": {
        "type": Honoured(),
        "source": Honoured("text and content; base64, url and file are as images"),
        "title": Honoured("comes before the text"),
        "context": Honoured("comes before the text"),
        "citations": Named(({"enabled": False},)),
        "cache_control": CACHE,
    },
    "search_result": {
        "type": Honoured(),
        "source": Honoured("comes before the text"),
        "title": Honoured("comes before the text"),
        "content": Honoured(),
        "citations": Named(({"enabled": False},)),
        "cache_control": CACHE,
    },
    **HOSTED_BLOCKS,
}

# Of documents.
_READ_SOURCES: Final = ("text", "content")

BlockKind = Literal["text", "note", "thinking", "tool_use", "tool_result"]

# Of those that another provider's tools leave in a conversation, those in an assistant's turn.
_OF_THE_MODEL: Final = frozenset(HOSTED_BLOCKS) - {"container_upload", "browser_state"}
_RESULTS: Final = frozenset(kind for kind in HOSTED_BLOCKS if kind.endswith("_tool_result"))
# Which blocks may stand in whose turn, and in which other block.
_INSIDE: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "tool_result", "document", "search_result", "container_upload"}) | _RESULTS,
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use"}) | _OF_THE_MODEL,
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
    "tool_result": frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"}),
    "document": frozenset({"text", "image"}),
    "search_result": frozenset({"text"}),
}


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """What a block became. text: of a text, a note, a reasoning, a result; the others: of a call."""

    kind: BlockKind
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A tool that is offered, or no longer is, from some place of the conversation on. definition: as in `tools`."""

    name: str
    where: str
    is_removal: bool = False
    definition: object = None


@dataclass(slots=True)
class ReadNotes:
    """What is found in blocks beside their text: names that are ignored, and changes of the tools, in order.

    hosted_names: of the tools that other servers ran, by the ids of their calls.
    """

    ignored: dict[str, None] = field(default_factory=dict[str, None])
    tool_changes: list[ToolChange] = field(default_factory=list[ToolChange])
    hosted_names: dict[str, str] = field(default_factory=dict[str, str])


def read_blocks(items: list[object], holder: str, where: str, notes: ReadNotes) -> list[ReadBlock]:
    """Blocks in order. holder: the role of the turn, or the type of the block, that they are in.

    Raises RequestError naming the place.
    """
    return [block for index, item in enumerate(items) for block in _read(item, holder, f"{where}.{index}", notes)]


def _read(item: object, holder: str, where: str, notes: ReadNotes) -> list[ReadBlock]:
    block = as_object(item, where)
    kind = block.get("type")
    if not isinstance(kind, str):
        raise wrong(f"{where}.type", kind, "a string")
    table = BLOCK_FIELDS.get(kind) or (hosted_fields(kind) if holder == "assistant" else None)
    if table is None:
        raise _unread_block(kind, where)
    if kind in BLOCK_FIELDS and kind not in _INSIDE[holder]:
        allowed = ", ".join(sorted(_INSIDE[holder]))
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"`{where}` is a block of the type {shown(kind)}; here may be: {allowed}", where
        )
    names = check_fields(block, table, f"{where}.")
    # Named by the type, without indexes: a long conversation repeats them.
    notes.ignored |= dict.fromkeys(f"{kind[:MAX_NAME_LENGTH]}{name.removeprefix(where)}" for name in names)
    reader = _READERS.get(kind)
    return _hosted(kind, block, where, notes) if reader is None else reader(block, where, notes)


def _hosted(kind: str, block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    def inner(content: object, place: str) -> str:
        return _inner_text(content, "tool_result", place, notes)

    text = HostedReader(where, notes.ignored, notes.hosted_names, inner).text(kind, block)
    return [ReadBlock("note", text)] if text else []


def _text(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    del notes
    return [ReadBlock("text", as_text(block.get("text"), f"{where}.text"))]


def _image(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    del block, where, notes
    return [ReadBlock("text", note("image"))]


def _thinking(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    del notes
    text = as_text(block.get("thinking"), f"{where}.thinking")
    signature = read_text({f"{where}.signature": block.get("signature")}, f"{where}.signature")
    return [ReadBlock("thinking", text or signed_reasoning(signature or ""))]


def _redacted(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    """Only who made it can read it."""
    del block, where, notes
    return []


def _tool_use(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    del notes
    name = as_text(block.get("name"), f"{where}.name")
    id_ = as_text(block.get("id"), f"{where}.id")
    return [ReadBlock("tool_use", id=id_, name=name, arguments=as_object(block.get("input"), f"{where}.input"))]


def _tool_result(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    id_ = as_text(block.get("tool_use_id"), f"{where}.tool_use_id")
    content = block.get("content")
    text = "" if content is None else _inner_text(content, "tool_result", f"{where}.content", notes)
    name = f"{where}.is_error"
    is_error = read_bool({name: block.get("is_error")}, name, default=False)
    return [ReadBlock("tool_result", as_error(text) if is_error else text, id=id_)]


def _tool_reference(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    name = as_text(block.get("tool_name"), f"{where}.tool_name")
    notes.tool_changes.append(ToolChange(name, where))
    return [ReadBlock("text", name)]


def _tool_addition(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    tool = as_object(block.get("tool"), f"{where}.tool")
    if tool.get("type") == "tool_definition":
        definition = as_object(tool.get("definition"), f"{where}.tool.definition")
        name = as_text(definition.get("name"), f"{where}.tool.definition.name")
        notes.tool_changes.append(ToolChange(name, f"{where}.tool.definition", definition=definition))
    else:
        notes.tool_changes.append(ToolChange(_referenced(tool, f"{where}.tool"), f"{where}.tool"))
    return []


def _tool_removal(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    name = _referenced(as_object(block.get("tool"), f"{where}.tool"), f"{where}.tool")
    notes.tool_changes.append(ToolChange(name, f"{where}.tool", is_removal=True))
    return []


def _referenced(tool: Mapping[str, object], where: str) -> str:
    if tool.get("type") != "tool_reference":
        raise wrong(f"{where}.type", tool.get("type"), "tool_reference, or tool_definition in a tool_addition")
    return as_text(tool.get("name"), f"{where}.name")


def _document(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    source = as_object(block.get("source"), f"{where}.source")
    match source.get("type"):
        case "text":
            text = as_text(source.get("data"), f"{where}.source.data")
        case "content":
            text = _inner_text(source.get("content"), "document", f"{where}.source.content", notes)
        case "base64" | "url" | "file":
            notes.ignored["document.source"] = None
            text = note("document")
        case kind:
            raise _unread_document(kind, where)
    return [_headed(block, ("title", "context"), where, text)]


def refuse_attachments(content: object, where: str) -> None:
    """Raises RequestError for an image, or a document that is no text, in content that was read; not in results."""
    if isinstance(content, str):
        return
    for index, item in enumerate(as_list(content, where)):
        block, place = as_object(item, where), f"{where}.{index}"
        if block["type"] in ("image", "container_upload"):
            raise RequestError(
                ErrorCode.UNSUPPORTED,
                f"`{place}` is a block of the type {shown(block['type'])}, which is not supported: "
                "this model reads text only; leave it out",
                place,
            )
        if block["type"] == "document":
            source = as_object(block["source"], place)
            if source["type"] not in _READ_SOURCES:
                raise _unread_document(source["type"], place)
            if source["type"] == "content":
                refuse_attachments(source["content"], f"{place}.source.content")


def _unread_block(kind: str, where: str) -> RequestError:
    return RequestError(
        ErrorCode.UNSUPPORTED,
        f"`{where}` is a block of the type {shown(kind)}, which is not supported: "
        "this server reads text, thinking, tool_use and tool_result",
        where,
    )


def _unread_document(kind: object, where: str) -> RequestError:
    return RequestError(
        ErrorCode.UNSUPPORTED,
        f"`{where}.source` is of the type {shown(kind)}: only documents of the type text and content are read",
        f"{where}.source",
    )


def _search_result(block: Mapping[str, object], where: str, notes: ReadNotes) -> list[ReadBlock]:
    text = _inner_text(block.get("content"), "search_result", f"{where}.content", notes)
    return [_headed(block, ("title", "source"), where, text)]


def _headed(block: Mapping[str, object], names: tuple[str, ...], where: str, text: str) -> ReadBlock:
    heads = [as_text(block[name], f"{where}.{name}") for name in names if block.get(name) is not None]
    return ReadBlock("text", "\n".join([*heads, text]))


def _inner_text(content: object, holder: str, where: str, notes: ReadNotes) -> str:
    """The text of what is inside another block."""
    if isinstance(content, str):
        return content
    items = as_list(content, where, "a string or an array of blocks")
    return "\n".join(block.text for block in read_blocks(items, holder, where, notes))


_Reader = Callable[[Mapping[str, object], str, ReadNotes], list[ReadBlock]]
_READERS: Final[Mapping[str, _Reader]] = {
    "text": _text,
    "image": _image,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "tool_reference": _tool_reference,
    "tool_addition": _tool_addition,
    "tool_removal": _tool_removal,
    "document": _document,
    "search_result": _search_result,
}
