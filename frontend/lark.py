"""Builds a grammar's text in llguidance's Lark, where a mark that is a token of its own is named by its id.

Text never matches such a token, special or not; knows nothing of tools.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

# Names of terminals that every grammar may use.
TEXT: Final = "TEXT"
_TERMINALS: Final = {TEXT: r"/(?s:.)*/", "SPACE": r"/\s*/", "NUMBER": r"/:[0-9]{1,3}/"}
# With the separators that models are trained on: the client sees arguments that were read and written anew.
_SPACED: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}
_COMPACT: Final = {"whitespace_flexible": False, "lenient": False}

_NOTHING: Final = '""'


class Opening(NamedTuple):
    """An expression for text up to a mark's first part, that part included, and the rest of the mark."""

    expression: str
    rest: str


class Lark:
    """Rules, in the order they are added; text() is the grammar. tokens: ids by text."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens = tokens
        self._pattern = re.compile(
            "|".join(re.escape(text) for text in sorted(tokens, key=len, reverse=True)) or r"(?!)"
        )
        self._rules: list[str] = []
        self._lazy = 0

    def rule(self, name: str, expression: str) -> None:
        """Adds a rule."""
        self._rules.append(f"{name}: {expression.strip() or _NOTHING}")

    def json(self, name: str, schema: Mapping[str, Any], *, is_compact: bool = False) -> None:
        """Adds a rule for JSON that fits a schema; is_compact: as a whole reply is constrained, not as calls are."""
        written = {**schema, "x-guidance": _COMPACT if is_compact else _SPACED}
        self._rules.append(f"{name}: %json {json.dumps(written, ensure_ascii=False)}")

    def literal(self, text: str) -> str:
        """An expression for text as it is; nothing for none."""
        parts: list[str] = []
        at = 0
        for found in self._pattern.finditer(text):
            parts += [_quoted(text[at : found.start()]), f"<[{self._tokens[found[0]]}]>"]
            at = found.end()
        return " ".join(part for part in [*parts, _quoted(text[at:])] if part)

    def text_through(self, mark: str) -> str:
        """An expression for any text up to a mark, and the mark."""
        opening = self.text_up_to(mark)
        return f"{opening.expression} {self.literal(opening.rest)}"

    def text_up_to(self, mark: str) -> Opening:
        """Text is one lexeme that ends as soon as the mark's first part is complete, so that what follows must fit."""
        found = self._pattern.search(mark)
        if found is not None and found.start() == 0:
            return Opening(f"{TEXT} {self.literal(found[0])}", mark[found.end() :])
        plain = mark if found is None else mark[: found.start()]
        trigger = plain.rstrip() or plain
        name = f"before_{self._lazy}"
        self._lazy += 1
        escaped = re.escape(trigger).replace("/", "\\/").replace("\\\n", "\\n")
        self._rules.append(f"{name}[lazy]: /(?s:.)*{escaped}/")
        return Opening(name, mark[len(trigger) :])

    def text(self) -> str:
        """The grammar."""
        used = " ".join(self._rules)
        terminals = [f"{name}: {pattern}" for name, pattern in _TERMINALS.items() if re.search(rf"\b{name}\b", used)]
        return "\n".join(["%llguidance {}", *self._rules, *terminals]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""
