"""llama.cpp's GBNF grammars as llguidance's Lark text: one pass over the text, linear in its length.

Owns the syntax and its errors. What a rule means, and whether all of it can be compiled, is llguidance's.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Final

from engine.errors import EngineError
from protocol.errors import ErrorCode

MAX_NESTING: Final = 100
_ROOT: Final = "root"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_REPEAT: Final = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_BLANK: Final = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]"}


@dataclass(slots=True)
class _Rule:
    """parts: Lark text in the even places, names of rules in the odd ones."""

    parts: list[str] = field(default_factory=lambda: [""])


def gbnf_to_lark(text: str) -> str:
    """The same grammar in Lark syntax. Raises EngineError with the line and what stands there.

    Every terminal is one character long: llguidance's lexer takes the longest terminal that fits, so that a longer
    one could swallow what the next element needs, and the grammar would never come to its end.
    """
    rules = _Reader(text).rules()
    names = {name: f"r{number}" for number, name in enumerate(rules)}
    lines = ["%llguidance {}", f"start: {names[_ROOT]}"]
    for name, rule in rules.items():
        body = "".join(names[part] if place % 2 else part for place, part in enumerate(rule.parts))
        lines.append(f"{names[name]}: {body}")
    return "\n".join(lines) + "\n"


class _Reader:
    """Reads one text. at: where it stands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nesting = 0
        self._rule = _Rule()
        self._used_at: dict[str, int] = {}

    def rules(self) -> dict[str, _Rule]:
        """Every rule by name; all names that are used have a rule, and one is the root."""
        rules: dict[str, _Rule] = {}
        self._skip(_BLANK_LINES)
        while self._at < len(self._text):
            at = self._at
            name = self._name()
            if name in rules:
                raise self._error(f"the rule {name} stands here again", at)
            rules[name] = self._read_rule()
            self._skip(_BLANK_LINES)
        missing = next((name for name in self._used_at if name not in rules), None)
        if missing is not None:
            raise self._error(f"there is no rule {missing}", self._used_at[missing])
        if _ROOT not in rules:
            raise self._error(f"there is no rule {_ROOT}, with which every grammar begins", 0)
        return rules

    def _read_rule(self) -> _Rule:
        self._rule = _Rule()
        self._skip(_BLANK)
        self._expect("::=")
        self._skip(_BLANK_LINES)
        self._alternatives()
        if self._at < len(self._text) and self._text[self._at] not in "\r\n":
            raise self._error("expected an element of a rule, or the end of the line")
        return self._rule

    def _alternatives(self) -> None:
        """To the closing parenthesis of a group, or to the end of the rule's line."""
        self._sequence()
        while self._peek() == "|":
            self._at += 1
            self._write(" | ")
            self._skip(_BLANK_LINES)
            self._sequence()

    def _sequence(self) -> None:
        space = _BLANK_LINES if self._nesting else _BLANK
        is_empty = True
        while self._element():
            is_empty = False
            self._skip(space)
            self._repetition()
            self._skip(space)
            self._write(" ")
        if is_empty:
            self._write('""')

    def _element(self) -> bool:
        """Reads one element; False where none begins."""
        match self._peek():
            case '"':
                self._literal()
            case "[":
                self._class()
            case ".":
                self._at += 1
                self._write("/(?s:.)/")
            case "(":
                self._group()
            case letter if letter and _NAME.match(letter):
                at = self._at
                name = self._name()
                self._used_at.setdefault(name, at)
                self._rule.parts += [name, ""]
            case _:
                return False
        return True

    def _group(self) -> None:
        if self._nesting >= MAX_NESTING:
            raise self._error(f"more than {MAX_NESTING} parentheses stand inside each other")
        self._nesting += 1
        self._at += 1
        self._write("(")
        self._skip(_BLANK_LINES)
        self._alternatives()
        self._expect(")")
        self._write(")")
        self._nesting -= 1

    def _repetition(self) -> None:
        letter = self._peek()
        if letter and letter in "*+?":
            self._at += 1
            self._write(letter)
        elif letter == "{":
            found = _REPEAT.match(self._text, self._at)
            if found is None:
                raise self._error("expected {count}, {least,} or {least,most}")
            self._at = found.end()
            least, comma, most = found.groups()
            self._write(f"{{{least},{most}}}" if comma else f"{{{least},{least}}}")

    def _literal(self) -> None:
        start = self._at
        self._at += 1
        letters: list[str] = []
        while self._peek() != '"':
            letters.append(self._letter(start))
        self._at += 1
        quoted = " ".join(json.dumps(letter, ensure_ascii=False) for letter in letters)
        self._write(quoted if len(letters) == 1 else f"({quoted})" if letters else '""')

    def _class(self) -> None:
        start = self._at
        self._at += 1
        is_negated = self._peek() == "^"
        self._at += is_negated
        ranges: list[str] = []
        while self._peek() != "]":
            first = self._letter(start)
            is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] != "]"
            self._at += is_range
            ranges.append(f"{_in_class(first)}-{_in_class(self._letter(start))}" if is_range else _in_class(first))
        self._at += 1
        if not ranges:
            raise self._error("a character class is empty", start)
        self._write(f"/[{'^' if is_negated else ''}{''.join(ranges)}]/")

    def _letter(self, start: int) -> str:
        letter = self._peek()
        if not letter:
            raise self._error("what begins here has no end", start)
        if letter != "\\":
            self._at += 1
            return letter
        found = _ESCAPE.match(self._text, self._at)
        if found is None or (found[4] and found[4] not in _PLAIN_ESCAPES):
            raise self._error("an unknown escape")
        code = found[1] or found[2] or found[3]
        if code and (int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) < 0xE000):
            raise self._error("an escape that is no character")
        self._at = found.end()
        return chr(int(code, 16)) if code else _PLAIN_ESCAPES[found[4]]

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            raise self._error("expected the name of a rule")
        self._at = found.end()
        return found[0]

    def _expect(self, word: str) -> None:
        if not self._text.startswith(word, self._at):
            raise self._error(f"expected {word}")
        self._at += len(word)

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self._at)
        if found is not None:
            self._at = found.end()

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _write(self, lark: str) -> None:
        self._rule.parts[-1] += lark

    def _error(self, why: str, at: int | None = None) -> EngineError:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        before, after = self._text[max(0, at - 20) : at], self._text[at : at + 20]
        message = f"GBNF, line {line}, column {column}, {json.dumps(before)} ^ {json.dumps(after)}: {why}"
        return EngineError(ErrorCode.INVALID_REQUEST, message, param="grammar")


def _in_class(letter: str) -> str:
    """A character as a regular expression's class takes it."""
    return letter if letter.isalnum() and letter.isascii() else f"\\x{{{ord(letter):X}}}"
