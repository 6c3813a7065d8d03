"""The items of a Responses conversation as chat templates want them: messages, with an assistant's turn in one.

Owns every rule about an item; tools that items bring along are the tools module's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from frontend.dialects.attachments import asked_index, is_attachment, note, refuse_attachments
from frontend.dialects.fields import FieldTable, Harmless, Honoured, Named, check_nested, plain_path
from frontend.dialects.hosted_tools import result_note
from frontend.dialects.openai_messages import CUSTOM_INPUT, read_arguments
from frontend.dialects.openai_responses_hosted import ITEM_FIELDS, HostedReading, Item, hosted_item
from frontend.dialects.openai_responses_output import unsealed
from frontend.dialects.openai_responses_stored import item_type
from frontend.dialects.openai_responses_tools import OfferedTools, joined_name
from frontend.dialects.values import as_list, as_object, as_text, read_bool, read_text, shown, wrong
from frontend.errors import RequestError
from protocol.errors import ErrorCode

MESSAGE_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "role": Honoured("user, assistant, system, or developer, which is system"),
    "content": Honoured("a string, or text parts, which are joined; a note for each image or file that is history"),
    "phase": Harmless("tells a client what to show"),
}
CALL_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "call_id": Honoured(),
    "name": Honoured(),
    "namespace": Honoured("joined with the name, as with the tools"),
    "arguments": Honoured("of a function_call: given to the template as an object"),
    "input": Honoured("of a custom_tool_call: given to the template as an argument"),
    "caller": Named(),
    "async": Named((False,)),
}
OUTPUT_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "call_id": Honoured("of a call that came before"),
    "output": Honoured("a string, or text parts, which are joined; a note for each image or file"),
    "name": Harmless("the call has it"),
    "namespace": Harmless("the call has it"),
    "caller": Named(),
}
REASONING_ITEM_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "content": Honoured("given to the template as reasoning_content"),
    "encrypted_content": Honoured("read where there is no content, if it is Convoy's own; another's is named"),
    "summary": Honoured("read where there is neither"),
}
PART_FIELDS: Final[FieldTable] = {
    "type": Honoured("input_text, output_text, text, refusal, reasoning_text or summary_text"),
    "text": Honoured(),
    "refusal": Honoured(),
    "annotations": Named(([],)),
    "logprobs": Harmless("the model is not told how likely its words were"),
    "prompt_cache_breakpoint": Harmless("steers only where OpenAI caches"),
}
TOOLS_ITEM_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "role": Harmless("tools are offered to the model alone"),
    "tools": Honoured("offered like the request's own"),
}
APPROVAL_FIELDS: Final[FieldTable] = {
    **ITEM_FIELDS,
    "approval_request_id": Harmless("it follows its request"),
    "approve": Honoured("the user's word; as the last item true is refused, for no MCP server can be called here"),
    "reason": Honoured(),
}
# What the client wants of the reply, and not what was said.
_SETTINGS: Final[Mapping[str, str]] = {
    "compaction_trigger": "nothing is compacted here: ask for a summary in a message",
    "configuration_update": "send `reasoning` and `text` beside `input`",
}

_APPROVAL: Final = "mcp_approval_response"
_CALLS: Final = ("reasoning", "function_call", "custom_tool_call")
ROLES: Final[Mapping[str, str]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
PART_TEXTS: Final[Mapping[str, str]] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}


@dataclass(frozen=True, slots=True)
class Recalled:
    """What was stored before. history: items up to the request's own. references: items by id."""

    history: tuple[dict[str, Any], ...] = ()
    references: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


NOTHING: Final = Recalled()


@dataclass(slots=True, eq=False)
class Transcript:
    """Messages as items are added in their order, and what else the items bring."""

    tools: OfferedTools
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    ignored: dict[str, None] = field(default_factory=dict[str, None])
    _called: dict[str, str] = field(default_factory=dict[str, str])

    def add_all(self, items: Sequence[Item], place: str) -> None:
        """The request's own items. place: what they are in, e.g. `input`. Raises RequestError, as add does."""
        asked = asked_index([_speaker(item) for item in items])
        for index, item in enumerate(items):
            where = f"{place}[{index}]"
            self.add(item, where)
            if index == len(items) - 1:
                _refuse_approval(item, where)
            if index == asked or _speaker(item) in ("system", "developer"):
                refuse_attachments(item.get("content"), f"{where}.content[{{}}]".format)

    def instruct(self, text: str) -> None:
        """A leading system message; all that lead are one, for most templates take one."""
        if self.messages and self.messages[-1]["role"] == "system" and len(self.messages) == 1:
            self.messages[0]["content"] += "\n\n" + text
        else:
            self.messages.append({"role": "system", "content": text})

    def add(self, item: Item, where: str) -> None:
        """One item. Raises RequestError for a type that cannot be read, and for a malformed one."""
        kind = item_type(item)
        if not isinstance(kind, str):
            raise wrong(f"{where}.type", kind, "the type of an item")
        reader, hosted = _READERS.get(kind), hosted_item(kind)
        read_text({f"{where}.id": item.get("id")}, f"{where}.id")
        if reader is not None:
            reader(self, item, where)
        elif hosted is not None:
            self.hosted(HostedReading(hosted, item, where))
        else:
            advice = _SETTINGS.get(kind, "leave it out")
            raise RequestError(
                ErrorCode.UNSUPPORTED,
                f"`{where}` is an item of the type {shown(kind)}, which this server does not read: {advice}",
                where,
            )

    def message(self, item: Item, where: str) -> None:
        """What somebody said."""
        self.ignored |= check_nested(item, MESSAGE_FIELDS, where)
        given = item.get("role")
        role = ROLES.get(given) if isinstance(given, str) else None
        if role is None:
            raise wrong(f"{where}.role", given, "one of " + ", ".join(ROLES))
        text = self.text(item.get("content"), f"{where}.content")
        match role:
            case "system":
                self.instruct(text)
            case "assistant":
                self._say(text)
            case _:
                self.messages.append({"role": role, "content": text})

    def reasoning(self, item: Item, where: str) -> None:
        """What the model thought before what follows."""
        self.ignored |= check_nested(item, REASONING_ITEM_FIELDS, where)
        content = self._parts(item.get("content"), f"{where}.content")
        sealed = read_text(item, "encrypted_content", f"{where}.")
        opened = None if sealed is None else unsealed(sealed)
        if sealed is not None and opened is None:
            self.ignored["input[].encrypted_content"] = None
        summary = self._parts(item.get("summary"), f"{where}.summary")
        text = content or opened or summary
        if text:
            self.messages.append({"role": "assistant", "content": "", "reasoning_content": text})

    def function_call(self, item: Item, where: str) -> None:
        """A call that the model made."""
        self.ignored |= check_nested(item, CALL_FIELDS, where)
        self._call(item, where, read_arguments(item.get("arguments"), f"{where}.arguments"))

    def custom_tool_call(self, item: Item, where: str) -> None:
        """A call of a custom tool, as the model made it: of a function with one string."""
        self.ignored |= check_nested(item, CALL_FIELDS, where)
        self._call(item, where, {CUSTOM_INPUT: as_text(item.get("input"), f"{where}.input")})

    def call_output(self, item: Item, where: str) -> None:
        """What a call came to."""
        self.ignored |= check_nested(item, OUTPUT_FIELDS, where)
        call_id = as_text(item.get("call_id"), f"{where}.call_id")
        self._add_output(call_id, self.text(item.get("output"), f"{where}.output"), where)

    def hosted(self, read: HostedReading) -> None:
        """What one of another provider's tools did: words, or a call and an output where the client ran it."""
        call_id, telling = read.call_id, read.kind.telling
        if telling == "output":
            text = self._found_tools(read) if "tools" in read.kind.fields else read.result()
            if call_id is None:
                self._say(result_note(read.name, text))
            else:
                self._add_output(call_id, text, read.where)
        elif telling == "call" and call_id is not None:
            self._add_call(call_id, read.name, read.arguments)
            # The output of a local shell may name its call by this.
            self._called.setdefault(read_text(read.item, "id") or call_id, read.name)
        elif note := read.note():
            self._say(note)
        self.ignored |= read.ignored

    def approval(self, item: Item, where: str) -> None:
        """The user's word on a call of an MCP server."""
        self.ignored |= check_nested(item, APPROVAL_FIELDS, where)
        is_approved = read_bool(item, "approve", default=False, within=f"{where}.")
        reason = read_text(item, "reason", f"{where}.")
        word = "[the user allows the call" if is_approved else "[the user does not allow the call"
        self.messages.append({"role": "user", "content": f"{word}: {reason}]" if reason else f"{word}]"})

    def additional_tools(self, item: Item, where: str) -> None:
        """Tools that are there from here on; a template has one list of tools, so they are there from the start."""
        self.ignored |= check_nested(item, TOOLS_ITEM_FIELDS, where)
        self.tools.read(item.get("tools"), f"{where}.tools")

    def text(self, value: object, where: str) -> str:
        """A string, or the joined text of parts."""
        if isinstance(value, str):
            return value
        if value is None:
            raise wrong(where, None, "a string or an array of text parts")
        return self._parts(value, where)

    def _parts(self, value: object, where: str) -> str:
        if value is None:
            return ""
        parts = as_list(value, where, "a string or an array of text parts")
        return "".join([self._part(part, f"{where}[{index}]") for index, part in enumerate(parts)])

    def _part(self, value: object, where: str) -> str:
        part = as_object(value, where)
        kind = as_text(part.get("type"), f"{where}.type")
        if is_attachment(kind):
            self.ignored[f"{plain_path(where)}.{kind}"] = None
            return note(kind)
        field_name = PART_TEXTS.get(kind)
        if field_name is None:
            raise RequestError(
                ErrorCode.UNSUPPORTED,
                f"`{where}` is a part of the type {shown(kind)}, which is not supported: this server reads text only",
                where,
            )
        self.ignored |= check_nested(part, PART_FIELDS, where)
        return as_text(part.get(field_name), f"{where}.{field_name}")

    def _say(self, text: str) -> None:
        """Goes on in the assistant's turn that its reasoning began."""
        last = self.messages[-1] if self.messages else None
        if last is None or last["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": text})
        else:
            last["content"] += f"\n\n{text}" if last["content"] else text

    def _call(self, item: Item, where: str, arguments: object) -> None:
        call_id = as_text(item.get("call_id"), f"{where}.call_id")
        name = joined_name(as_text(item.get("name"), f"{where}.name"), read_text(item, "namespace", f"{where}."))
        self._add_call(call_id, name, arguments)

    def _found_tools(self, read: HostedReading) -> str:
        """What a search of tools has found: offered, and told by their names."""
        found = read.item.get("tools")
        return "\n".join([] if found is None else self.tools.find(found, f"{read.where}.tools"))

    def _add_output(self, call_id: str, text: str, where: str) -> None:
        name = self._called.get(call_id)
        if name is None:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"`{where}` is the output of the call {shown(call_id)}, and no such call comes before it",
                where,
            )
        self.messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": text})

    def _add_call(self, call_id: str, name: str, arguments: object) -> None:
        self._called[call_id] = name
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        call = {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}
        self.messages[-1].setdefault("tool_calls", []).append(call)


_READERS: Final[Mapping[str, Callable[[Transcript, Item, str], None]]] = {
    "message": Transcript.message,
    "reasoning": Transcript.reasoning,
    "function_call": Transcript.function_call,
    "function_call_output": Transcript.call_output,
    "custom_tool_call": Transcript.custom_tool_call,
    "custom_tool_call_output": Transcript.call_output,
    "additional_tools": Transcript.additional_tools,
    _APPROVAL: Transcript.approval,
}


def _speaker(item: Item) -> object:
    """Whose an item is: what the model made is the assistant's, results of tools are nobody's."""
    kind = item_type(item)
    if kind == "message":
        return item.get("role")
    if kind == _APPROVAL:
        return "user"
    hosted = hosted_item(kind)
    is_models_own = kind in _CALLS if hosted is None else hosted.telling != "output"
    return "assistant" if is_models_own else None


def _refuse_approval(item: Item, where: str) -> None:
    """Of a call that is to be made now."""
    if item_type(item) == _APPROVAL and item.get("approve") is True:
        raise RequestError(
            ErrorCode.UNSUPPORTED,
            f"`{where}` allows a call of an MCP server, which this server cannot make: run the tool yourself, "
            "and send its call and its output as those of a function",
            where,
        )
