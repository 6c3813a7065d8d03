"""One JSON value in text that comes in pieces: finds its end, checks it, and hands it on as valid JSON.

Lenient where models err and the meaning is plain: line breaks and tabs inside strings, escapes that JSON does not
have, Python's True, False and None. Knows no format.
"""

import re
from typing import Final

MAX_DEPTH: Final = 200
# A longer number or word is none: it is held until it is whole, and would be read anew with each token.
MAX_SCALAR_CHARACTERS: Final = 1_000
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_UNICODE: Final = re.compile(r"\\u[0-9a-fA-F]{0,4}")
_SCALAR: Final = re.compile(r"[A-Za-z0-9+.-]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS: Final = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_ESCAPED: Final = frozenset('"\\/bfnrt')
_CONTROL: Final = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    """Text as the inside of a JSON string."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)


_SPECIAL: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {
    **{chr(code): f"\\u{code:04x}" for code in range(0x20)},
    **_CONTROL,
    '"': '\\"',
    "\\": "\\\\",
}


class JsonScanner:
    """One value. read: characters of the last feed that were taken.

    is_starved: the others are to be fed again, with more. is_broken: they do not belong to any value.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.is_broken: bool = False
        self.is_starved = False
        self.read = 0
        self._expects = "value"
        self._closers: list[str] = []
        self._is_key = False

    def feed(self, text: str, *, is_last: bool = False) -> str:
        """What of the value became certain, as valid JSON; never ends within an escape, a number or a word."""
        parts: list[str] = []
        at = 0
        while at < len(text) and not self.is_done and not self.is_broken:
            before = at
            match self._expects:
                case "string":
                    at = self._in_string(text, at, parts)
                case "scalar":
                    at = self._in_scalar(text, at, parts, is_last=is_last)
                case _:
                    at = self._between(text, at, parts)
                    continue
            if at == before:
                break
        self.read = at
        self.is_broken = self.is_broken or (is_last and not self.is_done)
        self.is_starved = at < len(text) and not self.is_done and not self.is_broken
        return "".join(parts)

    def _in_string(self, text: str, at: int, parts: list[str]) -> int:
        found = _PLAIN.match(text, at)
        assert found is not None
        parts.append(found[0])
        at = found.end()
        if at == len(text):
            return at
        character = text[at]
        if character == "\\":
            return self._in_escape(text, at, parts)
        parts.append(character if character == '"' else escaped(character))
        if character == '"':
            self._end_value()
        return at + 1

    def _in_escape(self, text: str, at: int, parts: list[str]) -> int:
        """Not taken until it is whole. What is no escape of JSON's is a backslash and what follows it."""
        following = text[at + 1 : at + 2]
        found = _UNICODE.match(text, at)
        if not following or (found and found.end() == len(text) and len(found[0]) < len("\\u0000")):
            return at
        if found and len(found[0]) == len("\\u0000"):
            parts.append(found[0])
            return found.end()
        if following in _ESCAPED:
            parts.append("\\" + following)
            return at + 2
        parts.append("'" if following == "'" else "\\\\")
        return at + (2 if following == "'" else 1)

    def _in_scalar(self, text: str, at: int, parts: list[str], *, is_last: bool) -> int:
        found = _SCALAR.match(text, at)
        assert found is not None
        if len(found[0]) > MAX_SCALAR_CHARACTERS:
            self.is_broken = True
            return at
        if found.end() == len(text) and not is_last:
            return at
        word = _WORDS.get(found[0], found[0])
        if word == found[0] and word not in _WORDS and not _NUMBER.fullmatch(word):
            self.is_broken = True
            return at
        parts.append(word)
        self._end_value()
        return found.end()

    def _between(self, text: str, at: int, parts: list[str]) -> int:
        """White space, then one of what may come."""
        found = _SPACE.match(text, at)
        assert found is not None
        parts.append(found[0])
        at = found.end()
        if at == len(text):
            return at
        character = text[at]
        match self._expects:
            case "value" | "item or end":
                return self._begin_value(character, at, parts)
            case "key" | "key or end":
                is_right = self._begin_key(character)
            case "colon":
                is_right = character == ":"
                self._expects = "value"
            case _:
                is_right = self._after_value(character)
        return self._taken(character, is_right, at, parts)

    def _taken(self, character: str, is_right: bool, at: int, parts: list[str]) -> int:
        if not is_right:
            self.is_broken = True
            return at
        parts.append(character)
        return at + 1

    def _begin_value(self, character: str, at: int, parts: list[str]) -> int:
        if character == '"':
            self._expects = "string"
            self._is_key = False
        elif character in ("{", "["):
            is_right = len(self._closers) < MAX_DEPTH
            self._closers.append("}" if character == "{" else "]")
            self._expects = "key or end" if character == "{" else "item or end"
            return self._taken(character, is_right, at, parts)
        elif _SCALAR.fullmatch(character):
            self._expects = "scalar"
            return at
        else:
            is_right = character == "]" and self._expects == "item or end"
            return self._taken(character, is_right and self._close(character), at, parts)
        return self._taken(character, True, at, parts)

    def _begin_key(self, character: str) -> bool:
        if character == "}" and self._expects == "key or end":
            return self._close(character)
        self._expects = "string"
        self._is_key = True
        return character == '"'

    def _after_value(self, character: str) -> bool:
        if character == ",":
            self._expects = "key" if self._closers[-1] == "}" else "value"
            return True
        return self._close(character)

    def _close(self, character: str) -> bool:
        if character != self._closers[-1]:
            return False
        self._closers.pop()
        self._end_value()
        return True

    def _end_value(self) -> None:
        if self._is_key:
            self._is_key = False
            self._expects = "colon"
        elif self._closers:
            self._expects = "comma or end"
        else:
            self.is_done = True
