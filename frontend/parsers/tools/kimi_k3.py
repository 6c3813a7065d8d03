"""Kimi K3's calls: XTML tags that say of each argument which type it has, or one block of JSON."""

from typing import Final

from frontend.parsers.base import CallBegun, CallEnded, Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark, run_of_calls
from frontend.parsers.json_calls import streamed_call
from frontend.parsers.schema_types import TEXT
from frontend.parsers.source import MalformedError, Source
from frontend.parsers.tagged_calls import attributes_of
from frontend.parsers.typed_arguments import TypedArguments

_SEPARATOR: Final = "<|sep|>"
_SECTION: Final = f"<|open|>tools{_SEPARATOR}"
_SECTION_END: Final = f"<|close|>tools{_SEPARATOR}"
_CALL: Final = "<|open|>call"
_CALL_END: Final = f"<|close|>call{_SEPARATOR}"
_ARGUMENT: Final = "<|open|>argument"
_ARGUMENT_END: Final = f"<|close|>argument{_SEPARATOR}"
_JSON: Final = "<|open|>json"
_JSON_END: Final = f"<|close|>json{_SEPARATOR}"


def _claims(template: str) -> bool:
    return "<|open|>" in template and "'tools'" in template and "<|sep|>" in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    return run_of_calls(source, _CALL, _SECTION_END, lambda source: _call(source, tools))


def _call(source: Source, tools: Tools) -> Reading[None]:
    name = (yield from _attributes(source)).get("tool", "")
    tool = tools.get(name)
    found = yield from next_mark(source, _ARGUMENT, _JSON, _CALL_END)
    if tool is None or found is None:
        raise MalformedError
    if found == _JSON:
        yield from _attributes(source)
        yield from streamed_call(source, name)
        yield from next_mark(source, _JSON_END)
        yield from next_mark(source, _CALL_END)
        return
    yield CallBegun(name)
    arguments = TypedArguments(tool, "nothing")
    while found == _ARGUMENT:
        attributes = yield from _attributes(source)
        stated = TEXT if attributes.get("type") == "string" else None
        yield from arguments.value(source, attributes.get("key", ""), _ARGUMENT_END, stated=stated)
        found = yield from next_mark(source, _ARGUMENT, _CALL_END)
    if found is None:
        raise MalformedError
    yield arguments.ended()
    yield CallEnded()


def _attributes(source: Source) -> Reading[dict[str, str]]:
    return attributes_of((yield from source.name_until(_SEPARATOR)).text)


KIMI_K3: Final = ToolFormat(
    name="kimi_k3",
    claims=_claims,
    read=_read,
    openers=(_SECTION,),
    marks=(_SECTION_END, _CALL_END, _ARGUMENT_END, _JSON_END),
)
