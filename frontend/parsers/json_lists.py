"""Several calls as JSON objects, in a list or one behind the other; a call's own form is json_calls'."""

from frontend.parsers.base import Reading, ToolFormat, Tools
from frontend.parsers.call_runs import next_mark
from frontend.parsers.json_calls import ARGUMENT_KEYS, NAME_KEYS, call_object
from frontend.parsers.source import Source
from frontend.tool_grammar import ToolCallFormat


def list_format(name: str, begin: str, end: str, *, has_end: bool = True) -> ToolFormat:
    """The format of lists behind a mark that only its templates have. has_end: the model writes the other mark, too."""

    def read(source: Source, tools: Tools) -> Reading[None]:
        yield from call_objects(source)
        yield from next_mark(source, end)

    grammar = ToolCallFormat(
        section_begin=f"{begin}[", begin="", end="", separator=", ", section_end=f"]{end if has_end else ''}"
    )
    return ToolFormat(
        name=name,
        claims=lambda template: begin in template,
        read=read,
        openers=(begin,),
        marks=(end,),
        grammar=grammar,
    )


def call_objects(
    source: Source, name_keys: tuple[str, ...] = NAME_KEYS, argument_keys: tuple[str, ...] = ARGUMENT_KEYS
) -> Reading[None]:
    """Objects up to what begins none, at least one; the list's brackets and the commas may be missing."""
    yield from source.skip_space()
    yield from source.accept("[")
    while True:
        yield from call_object(source, name_keys, argument_keys)
        yield from source.skip_space()
        yield from source.accept(",")
        if (yield from source.skip_space()) != "{":
            break
    yield from source.accept("]")
