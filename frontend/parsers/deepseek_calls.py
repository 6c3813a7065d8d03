"""DeepSeek V3's calls, with special tokens around each: a name and its arguments as JSON.

V3 and R1 write the tool's type before the name and JSON in a code block; V3.1 writes neither. Either is read.
"""

from typing import Final

from frontend.parsers.base import Reading, Tools
from frontend.parsers.call_runs import next_mark, run_of_calls
from frontend.parsers.json_calls import streamed_call
from frontend.parsers.source import Source
from frontend.tool_grammar import ToolCallFormat

SECTION: Final = "<｜tool▁calls▁begin｜>"
SECTION_END: Final = "<｜tool▁calls▁end｜>"
CALL: Final = "<｜tool▁call▁begin｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
CODE: Final = "```json"
OPENERS: Final = (SECTION, CALL)
V3_GRAMMAR: Final = ToolCallFormat(
    section_begin=SECTION,
    begin=f"{CALL}function{SEPARATOR}",
    name_neck=f"\n{CODE}\n",
    end=f"\n```{CALL_END}",
    section_end=SECTION_END,
)
V31_GRAMMAR: Final = ToolCallFormat(
    section_begin=SECTION, begin=CALL, name_neck=SEPARATOR, end=CALL_END, separator="", section_end=SECTION_END
)
MARKS: Final = (SECTION_END, CALL_END, SEPARATOR)


def read_section(source: Source, tools: Tools) -> Reading[None]:
    """Calls up to the section's end; its beginning may be missing, too."""
    return run_of_calls(source, CALL, SECTION_END, lambda source: _call(source, tools))


def _call(source: Source, tools: Tools) -> Reading[None]:
    first = (yield from source.name_until(SEPARATOR)).text.strip()
    if first in tools and first != "function":
        yield from streamed_call(source, first)
    else:
        name = (yield from source.name_until("\n")).text.strip()
        yield from next_mark(source, CODE)
        yield from streamed_call(source, name)
        yield from next_mark(source, "```")
    yield from next_mark(source, CALL_END)
