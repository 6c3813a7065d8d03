"""Calls written as a name and pairs of tags, one for an argument's name and one for its value.

Shared by the formats that write so; which tags they are is the format's. Values are untyped text.
"""

from collections.abc import Callable
from dataclasses import dataclass

from frontend.parsers.base import CallBegun, CallEnded, Reading, ToolFormat, Tools
from frontend.parsers.json_calls import call_object
from frontend.parsers.source import MalformedError, Source
from frontend.parsers.typed_arguments import TypedArguments
from frontend.tagged_grammar import ArgumentTags
from frontend.tool_grammar import ToolCallFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTags:
    """value: None where key_end is the value's beginning, too. end: of the call."""

    key: str
    key_end: str
    value: str | None
    value_end: str
    end: str

    @property
    def marks(self) -> tuple[str, ...]:
        """All tags."""
        return (self.key, self.key_end, *([self.value] if self.value else []), self.value_end, self.end)


def keyed_format(name: str, begin: str, tags: KeyTags, claims: Callable[[str], bool], line: str = "\n") -> ToolFormat:
    """The format of calls in these tags, each in a section of its own. line: what the model writes between tags."""

    def read(source: Source, tools: Tools) -> Reading[None]:
        return keyed_call(source, tools, tags)

    neck = tags.key_end if tags.value is None else tags.key_end + line + tags.value
    grammar = ToolCallFormat(
        begin=begin, name_neck=line, tags=ArgumentTags(tags.key, neck, tags.value_end + line), end=tags.end
    )
    return ToolFormat(name=name, claims=claims, read=read, openers=(begin,), marks=tags.marks, grammar=grammar)


def keyed_call(source: Source, tools: Tools, tags: KeyTags) -> Reading[None]:
    """One call, from behind its opener; told once its first argument, or its end, is there. JSON is read, too."""
    if (yield from source.skip_space()) == "{":
        yield from call_object(source)
        if (yield from source.skip_space()) == "<":
            yield from source.accept(tags.end)
        return
    head = yield from source.name_until(tags.key, tags.end)
    name = head.text.strip()
    tool = tools.get(name)
    if tool is None:
        raise MalformedError
    yield CallBegun(name)
    arguments = TypedArguments(tool, "nothing")
    found = head.marker
    while found == tags.key:
        key = (yield from source.name_until(tags.key_end)).text.strip()
        if tags.value is not None:
            yield from source.skip_space()
            yield from source.expect(tags.value)
        yield from arguments.value(source, key, tags.value_end)
        yield from source.skip_space()
        found = yield from source.expect(tags.key, tags.end)
    yield arguments.ended()
    yield CallEnded()
