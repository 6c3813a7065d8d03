"""What a FakeEngine's row says: decided by the prompt, and with a temperature by the seed, never by neighbours.

A prompt (or last user message) of the form `!name argument` chooses a script; anything else gets words drawn
by the prompt's hash.
"""

import hashlib
import random
import re
from collections.abc import Callable, Iterator
from itertools import repeat

from tokenizers import Tokenizer

# What one step emits: token ids, nothing (the row is silent in this step), or an ending.
Script = Iterator[list[int]]

WORDS = ("fox", "bridge", "river", "café", "数える", "🦊", "👩‍👩‍👧", "e\u0301", "lorry", "seven", "über", "morning")
# A prompt that begins so is never read to its end: its row prefills until somebody ends it.
UNREAD = "!unread"
_RESULT_END = "\n</tool_response>"
_LAST_USER = re.compile(r".*<\|im_start\|>user\n(.*?)<\|im_end\|>\n<\|im_start\|>assistant\n$", re.DOTALL)


class ScriptedError(Exception):
    """The row fails in this step, with the engine's own words."""


def asked(prompt_text: str) -> str:
    """The last user message of a ChatML prompt, or the whole raw prompt."""
    found = _LAST_USER.match(prompt_text)
    text = found.group(1) if found else prompt_text
    # Agents put a message of their own before the user's, which templates may make one of.
    _, mark, command = text.rpartition("\n!")
    # So do results of tools; their tag is not theirs.
    return f"!{command.removesuffix(_RESULT_END)}" if mark else text


def script_for(prompt_text: str, tokenizer: Tokenizer, eos_id: int, draw: str = "") -> Script:
    """The steps of a row. Every script ends with EOS, over and over: who ignores it goes on.

    draw: the seed of a row with a temperature; another one, other words.
    """
    text = asked(prompt_text)
    name, _, argument = text.removeprefix("!").partition(" ")
    make = _SCRIPTS.get(name) if text.startswith("!") else None
    if make is None:
        return _words(prompt_text + draw, tokenizer, eos_id)
    return make(argument, tokenizer, eos_id)


def _encoded(text: str, tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def _words(prompt_text: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """8 to 24 words, EOS, and then words again for whoever ignores it."""
    drawn = random.Random(hashlib.sha256(prompt_text.encode()).digest())
    while True:
        for _ in range(drawn.randint(8, 24)):
            yield from ([id_] for id_ in _encoded(" " + drawn.choice(WORDS), tokenizer))
        yield [eos_id]


def _echo(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """The argument, a token a step."""
    yield from ([id_] for id_ in _encoded(argument, tokenizer))
    yield from repeat([eos_id])


def _count(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """` 0 1 2 …` without end."""
    del argument, eos_id
    number = 0
    while True:
        yield from ([id_] for id_ in _encoded(f" {number}", tokenizer))
        number += 1


def _burst(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """The argument, all tokens in one step."""
    yield _encoded(argument, tokenizer)
    yield from repeat([eos_id])


def _flood(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """That many tokens in every step, without end."""
    del eos_id
    ids = _encoded(" fox", tokenizer)
    yield from repeat((ids * int(argument))[: int(argument)])


def _silent(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """Never a token."""
    del argument, tokenizer, eos_id
    yield from repeat([])


def _linger(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """The argument, a token a step, and then nothing more: the row stays until somebody ends it."""
    del eos_id
    yield from ([id_] for id_ in _encoded(argument, tokenizer))
    yield from repeat([])


def _fail(argument: str, tokenizer: Tokenizer, eos_id: int) -> Script:
    """That many tokens, then a failure."""
    del eos_id
    ids = _encoded(" fox", tokenizer)
    yield from repeat(ids[:1], int(argument))
    raise ScriptedError(f"scripted failure after {argument} tokens")


_SCRIPTS: dict[str, Callable[[str, Tokenizer, int], Script]] = {
    "echo": _echo,
    "count": _count,
    "burst": _burst,
    "flood": _flood,
    "silent": _silent,
    "linger": _linger,
    "fail": _fail,
}
