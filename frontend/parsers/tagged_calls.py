"""Calls written as tags: one opens the call and names its tool, one opens each argument and names it.

Shared by the formats that write so; which tags they are is the format's. Values are untyped text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from frontend.parsers.base import CallBegun, CallEnded, Reading, ToolFormat, Tools
from frontend.parsers.call_runs import run_of_calls
from frontend.parsers.schema_types import TEXT
from frontend.parsers.source import MalformedError, Source
from frontend.parsers.typed_arguments import Trim, TypedArguments
from frontend.tool_grammar import ToolCallFormat

_CDATA: Final = "<![CDATA["
_CDATA_END: Final = "]]>"
_ATTRIBUTE: Final = re.compile(r"""\s*([\w:-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTags:
    """call, argument: an opening tag up to the name. trim: of each value.

    is_lax: a value ends before a line with the next argument or the call's end, too: models forget its closing tag.
    has_cdata: a value may stand in `<![CDATA[…]]>`.
    """

    call: str
    call_end: str
    argument: str
    argument_end: str
    trim: Trim
    is_lax: bool = False
    has_cdata: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """All tags, or what is certain of them."""
        return (self.call, self.call_end, self.argument, self.argument_end)

    @property
    def value_ends(self) -> tuple[str, ...]:
        """What ends an argument's value."""
        more = (f"\n{self.argument}", f"\n{self.call_end}") if self.is_lax else ()
        return (self.argument_end, *more)


class TagHead(NamedTuple):
    """What stands between an opening tag's beginning and its `>`."""

    name: str
    attributes: Mapping[str, str]


def tagged_format(name: str, begin: str, end: str, tags: CallTags, grammar: ToolCallFormat | None = None) -> ToolFormat:
    """The format of calls in these tags, in sections that only its templates have."""

    def read(source: Source, tools: Tools) -> Reading[None]:
        return tagged_section(source, tools, tags, end)

    return ToolFormat(
        name=name,
        claims=lambda template: begin in template,
        read=read,
        openers=(begin,),
        marks=(end, *tags.marks),
        grammar=grammar,
    )


def tagged_section(source: Source, tools: Tools, tags: CallTags, end: str) -> Reading[None]:
    """Calls up to the section's end; at least one."""
    return run_of_calls(source, tags.call, end, lambda source: tagged_call(source, tools, tags))


def tagged_call(source: Source, tools: Tools, tags: CallTags) -> Reading[None]:
    """One call, from behind its opening tag's beginning. It is told once its first argument, or its end, is there."""
    head = yield from tag_head(source)
    tool = tools.get(head.name)
    if tool is None:
        raise MalformedError
    arguments = TypedArguments(tool, tags.trim)
    yield from source.skip_space()
    found = yield from source.expect(tags.argument, tags.call_end)
    yield CallBegun(head.name)
    while found == tags.argument:
        head = yield from tag_head(source)
        stated = TEXT if head.attributes.get("string") == "true" else None
        if tags.has_cdata and (yield from _accept_cdata(source)):
            yield from arguments.value(source, head.name, _CDATA_END, stated=stated)
            yield from source.skip_space()
            found = yield from source.expect(*tags.value_ends)
        else:
            found = (yield from arguments.value(source, head.name, *tags.value_ends, stated=stated)).lstrip()
        if found == tags.argument_end:
            yield from source.skip_space()
            found = yield from source.expect(tags.argument, tags.call_end)
    yield arguments.ended()
    yield CallEnded()


def _accept_cdata(source: Source) -> Reading[bool]:
    return (yield from source.accept(_CDATA)) is not None


def tag_head(source: Source) -> Reading[TagHead]:
    """Reads a tag's name, in quotes or not, and its attributes."""
    taken = yield from source.name_until(">", "\n")
    text = taken.text.strip()
    if text[:1] in ("'", '"'):
        name, _, rest = text[1:].partition(text[0])
    else:
        name, _, rest = text.partition(" ")
    if not name or "<" in name:
        raise MalformedError
    return TagHead(name, attributes_of(rest))


def attributes_of(text: str) -> dict[str, str]:
    """A tag's attributes: `key="value"`, quotes and ampersands inside of a value spelled as XML has it."""
    return {
        found[1]: (found[2] or found[3] or "").replace("&quot;", '"').replace("&amp;", "&")
        for found in _ATTRIBUTE.finditer(text)
    }
