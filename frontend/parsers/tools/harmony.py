"""gpt-oss's calls: a message to `functions.name`, named in its header, with JSON as its text."""

import re
from typing import Final

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, Reading, ToolFormat, Tools
from frontend.parsers.json_calls import streamed_call
from frontend.parsers.source import MalformedError, Source
from frontend.tool_grammar import ToolCallFormat

_CALL_END: Final = "<|call|>"
_MESSAGE: Final = "<|message|>"
# Without the reasoning format, which reads headers. The recipient stands behind the channel, or before it.
_OPENERS: Final = ("<|channel|>commentary to=", "<|channel|>analysis to=", "<|start|>assistant to=")
_START_OPENERS: Final = ("to=functions.",)
_RECIPIENT: Final = re.compile(r"\s*(?:functions\.)?([\w.-]+)")


def _claims(template: str) -> bool:
    return "<|channel|>commentary" in template and "functions." in template


def _read(source: Source, tools: Tools) -> Reading[None]:
    header = (yield from source.name_until(_MESSAGE)).text
    found = _RECIPIENT.match(header.rpartition("to=")[2])
    if found is None:
        raise MalformedError
    name = found[1]
    if (yield from source.skip_space()) in ("", "<"):
        # A tool without arguments may be called with no text.
        if (yield from source.accept(_CALL_END)) is None and not _has_no_arguments(tools, name):
            raise MalformedError
        yield CallBegun(name)
        yield ArgumentsText("{}")
        yield CallEnded()
        return
    yield from streamed_call(source, name)
    yield from source.skip_space()
    yield from source.accept(_CALL_END, "<|end|>")


def _has_no_arguments(tools: Tools, name: str) -> bool:
    tool = tools.get(name)
    return tool is not None and not (tool.parameters or {}).get("properties")


HARMONY: Final = ToolFormat(
    name="harmony",
    claims=_claims,
    read=_read,
    openers=_OPENERS,
    start_openers=_START_OPENERS,
    marks=(_MESSAGE, _CALL_END, "<|constrain|>"),
    grammar=ToolCallFormat(
        begin="<|channel|>commentary to=functions.",
        name_neck=f" <|constrain|>json{_MESSAGE}",
        end="",
        is_single=True,
        has_free_text=False,
    ),
)
