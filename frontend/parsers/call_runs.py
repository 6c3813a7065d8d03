"""Several calls in one section, each behind the same mark, up to the section's end; knows no format."""

from collections.abc import Callable

from frontend.parsers.base import Reading
from frontend.parsers.source import MalformedError, Source


def run_of_calls(source: Source, call: str, end: str, read_call: Callable[[Source], Reading[None]]) -> Reading[None]:
    """Reads calls, at least one. call: the mark before each, behind which read_call begins. end: models forget it.

    A section that was opened by a call's own mark is in its first call already.
    """
    is_in_call = source.opener == call
    count = 0
    while is_in_call or (yield from next_mark(source, call, end)) == call:
        yield from read_call(source)
        is_in_call = False
        count += 1
    if count == 0:
        raise MalformedError


def next_mark(source: Source, *marks: str) -> Reading[str | None]:
    """Reads white space and whichever of the marks stands behind it; None for none."""
    yield from source.skip_space()
    return (yield from source.accept(*marks))
