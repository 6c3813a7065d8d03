"""Several calls as JSON objects, in a list or one behind the other; a call's own form is json_calls'."""

from frontend.parsers.base import Reading
from frontend.parsers.json_calls import ARGUMENT_KEYS, NAME_KEYS, call_object
from frontend.parsers.source import Source


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
