"""Calls written as Python: `name(key=value, …)` with literals as values, told as JSON while they come.

Shared by the formats that write Python; their markers are their own. Lenient where models err: JSON's words, quotes
inside a string that nobody escaped, text without quotes.
"""

import ast
import json
import re
from typing import Final

from frontend.parsers.base import ArgumentsText, CallBegun, CallEnded, Reading
from frontend.parsers.json_scan import escaped
from frontend.parsers.source import MAX_NAME_CHARACTERS, MalformedError, Source

MAX_DEPTH: Final = 60
_NAME: Final = re.compile(r"[\w.-]*")
_KEY: Final = re.compile(r"[\w-]*")
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER: Final = re.compile(
    r"[+-]?(?:0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)"
)
_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_STRING_BEGIN: Final = re.compile(r"([rRbBuUfF]{0,2})(['\"])")
_CLOSERS: Final = {"[": "]", "(": ")", "{": "}"}
# A line break behind a backslash is none.
_ESCAPES: Final = {**dict(zip("ntrbfva", "\n\t\r\b\f\v\a", strict=True)), "\\": "\\", "'": "'", '"': '"', "\n": ""}
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


def listed_calls(source: Source) -> Reading[None]:
    """`call, call]`, from behind the bracket; at least one call. Nothing but the bracket may be missing."""
    yield from source.skip_space()
    while True:
        yield from python_call(source)
        character = yield from source.skip_space()
        if character == ",":
            source.skip(1)
            character = yield from source.skip_space()
        if character in ("]", ""):
            source.skip(len(character))
            return


def lines_of_calls(source: Source) -> Reading[None]:
    """Calls on a line each, up to what begins no name; at least one."""
    count = 0
    while (yield from source.skip_space()) not in ("", "`", "<"):
        yield from python_call(source)
        count += 1
        yield from source.accept(",", ";")
    if count == 0:
        raise MalformedError


def python_call(source: Source) -> Reading[None]:
    """One call. It is told once its first argument has a name, or its parentheses are closed."""
    name = yield from _matching(source, _NAME)
    yield from source.expect("(")
    if (yield from source.skip_space()) == ")":
        source.skip(1)
        yield CallBegun(name)
        yield ArgumentsText("{}")
        yield CallEnded()
        return
    before = "{"
    while before:
        key = yield from _argument_name(source)
        if before == "{":
            yield CallBegun(name)
        yield ArgumentsText(f"{before}{_quoted(key)}: ")
        yield from _value(source, depth=0)
        before = ", " if (yield from _has_more(source, ")")) else ""
    yield ArgumentsText("}")
    yield CallEnded()


def _matching(source: Source, pattern: re.Pattern[str]) -> Reading[str]:
    """Reads what the pattern, which matches any beginning of a match, matches; at least a character."""
    while True:
        found = pattern.match(source.unread)
        assert found is not None
        if found.end() > MAX_NAME_CHARACTERS:
            raise MalformedError
        if found.end() < len(source.unread) or source.is_ended:
            if not found[0]:
                raise MalformedError
            source.skip(found.end())
            return found[0]
        yield


def _argument_name(source: Source) -> Reading[str]:
    key = yield from _matching(source, _KEY)
    yield from source.skip_space()
    yield from source.expect("=")
    yield from source.skip_space()
    return key


def _has_more(source: Source, closer: str) -> Reading[bool]:
    """Reads the comma before a further item, or the closer; a comma may stand before it."""
    character = yield from source.skip_space()
    if character == ",":
        source.skip(1)
        character = yield from source.skip_space()
        if character != closer:
            return True
    yield from source.expect(closer)
    return False


def _value(source: Source, depth: int) -> Reading[None]:
    """One value; depth 0 is an argument's."""
    if depth > MAX_DEPTH:
        raise MalformedError
    ahead = yield from source.peek(3)
    found = _STRING_BEGIN.match(ahead)
    if found is not None:
        source.skip(len(found[1]))
        yield ArgumentsText('"')
        yield from _string_inside(source, "r" in found[1].lower(), is_argument=depth == 0)
        yield ArgumentsText('"')
    elif ahead[:1] == "{":
        yield from _mapping(source, depth)
    elif ahead[:1] and ahead[:1] in "[(":
        yield from _sequence(source, depth)
    else:
        yield ArgumentsText(_scalar_text((yield from _scalar(source, ",)]}"))))


def _sequence(source: Source, depth: int) -> Reading[None]:
    closer = _CLOSERS[(yield from source.expect("[", "("))]
    yield ArgumentsText("[")
    has_more = (yield from source.skip_space()) != closer
    if not has_more:
        source.skip(1)
    while has_more:
        yield from _value(source, depth + 1)
        has_more = yield from _has_more(source, closer)
        if has_more:
            yield ArgumentsText(", ")
    yield ArgumentsText("]")


def _mapping(source: Source, depth: int) -> Reading[None]:
    source.skip(1)
    yield ArgumentsText("{")
    has_more = (yield from source.skip_space()) != "}"
    if not has_more:
        source.skip(1)
    while has_more:
        yield from _mapping_key(source)
        yield from source.skip_space()
        yield from source.expect(":")
        yield from source.skip_space()
        yield ArgumentsText(": ")
        yield from _value(source, depth + 1)
        has_more = yield from _has_more(source, "}")
        if has_more:
            yield ArgumentsText(", ")
    yield ArgumentsText("}")


def _mapping_key(source: Source) -> Reading[None]:
    """JSON's keys are strings: any other literal becomes its text."""
    found = _STRING_BEGIN.match((yield from source.peek(3)))
    yield ArgumentsText('"')
    if found is not None:
        source.skip(len(found[1]))
        yield from _string_inside(source, "r" in found[1].lower(), is_argument=False)
    else:
        key = (yield from _scalar(source, ":,}")).strip()
        yield ArgumentsText(escaped(_WORDS.get(key, key)))
    yield ArgumentsText('"')


def _scalar(source: Source, ends: str) -> Reading[str]:
    """Reads up to one of the ends that stands outside of brackets, which stays unread."""
    depth = 0
    parts: list[str] = []
    while True:
        text = yield from source.some()
        for at, character in enumerate(text):
            if depth == 0 and character in ends:
                source.skip(at)
                return "".join(parts) + text[:at]
            depth += (character in "([{") - (character in ")]}")
        source.skip(len(text))
        parts.append(text)


def _scalar_text(text: str) -> str:
    """JSON text of a number or a word; text without quotes becomes a string."""
    text = text.strip()
    if not text:
        raise MalformedError
    if text in _WORDS:
        return _WORDS[text]
    if _JSON_NUMBER.fullmatch(text):
        return text
    if _NUMBER.fullmatch(text):
        try:
            return json.dumps(ast.literal_eval(text), allow_nan=False)
        except (ValueError, SyntaxError):
            pass  # too long, or with zeros before it: text
    return _quoted(text)


def _string_inside(source: Source, is_raw: bool, *, is_argument: bool) -> Reading[None]:
    """A string from its quote on, told as the inside of a JSON string."""
    quote = yield from source.expect('"""', "'''", '"', "'")
    if len(quote) == 1 and (yield from source.peek(1)) == quote:
        # Two quotes and no third: an empty string.
        source.skip(1)
        return
    while True:
        piece = yield from source.piece_until(quote, "\\")
        if piece.text:
            yield ArgumentsText(escaped(piece.text))
        if piece.marker == "\\":
            yield ArgumentsText((yield from _raw_escape(source)) if is_raw else (yield from _escape(source)))
        elif piece.marker is not None:
            if len(quote) == 3 or (yield from _is_closing(source, is_argument)):
                return
            yield ArgumentsText(escaped(quote))


def _raw_escape(source: Source) -> Reading[str]:
    """A backslash is text, and so is the quote behind it."""
    return "\\\\" + escaped((yield from source.accept('"', "'")) or "")


def _escape(source: Source) -> Reading[str]:
    """The rest of an escape, as JSON text; what Python does not know stays as it is."""
    character = yield from source.peek()
    if character in _HEX_DIGITS:
        code = (yield from source.peek(1 + _HEX_DIGITS[character]))[1:]
        if len(code) == _HEX_DIGITS[character] and re.fullmatch(r"[0-9a-fA-F]+", code) and int(code, 16) < 0x110000:
            source.skip(1 + len(code))
            return _character(int(code, 16))
        return "\\\\"
    if character and character in "01234567":
        found = re.match(r"[0-7]{1,3}", (yield from source.peek(3)))
        assert found is not None
        source.skip(found.end())
        return _character(int(found[0], 8))
    if character in _ESCAPES:
        source.skip(1)
        return escaped(_ESCAPES[character])
    return "\\\\"


def _character(code: int) -> str:
    # Half of a surrogate pair has no UTF-8; JSON's readers join two such escapes.
    return f"\\u{code:04x}" if 0xD800 <= code < 0xE000 else escaped(chr(code))


def _is_closing(source: Source, is_argument: bool) -> Reading[bool]:
    """Whether a quote ends its string: models, and their templates, leave quotes inside of it as they are."""
    at = yield from _past_space(source, 0)
    character = yield from _character_at(source, at)
    if not is_argument or not character:
        return not character or character in ",:]})"
    if character == ")":
        behind = yield from _past_space(source, at + 1)
        space = (yield from source.peek(behind))[at + 1 :]
        following = yield from _character_at(source, behind)
        return "\n" in space or not following or following in "],;<`"
    if character != ",":
        return False
    begin = end = yield from _past_space(source, at + 1)
    while end <= MAX_NAME_CHARACTERS and _KEY.fullmatch((yield from _character_at(source, end)) or " "):
        end += 1
    if end == begin:
        return (yield from _character_at(source, begin)) in ("", ")")
    return (yield from _character_at(source, (yield from _past_space(source, end)))) == "="


def _past_space(source: Source, at: int) -> Reading[int]:
    """Further away than any name nothing is looked at."""
    while at <= MAX_NAME_CHARACTERS and (yield from _character_at(source, at)).isspace():
        at += 1
    return at


def _character_at(source: Source, at: int) -> Reading[str]:
    return (yield from source.peek(at + 1))[at:]


def _quoted(text: str) -> str:
    return f'"{escaped(text)}"'
