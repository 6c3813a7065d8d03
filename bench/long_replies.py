"""What a reply of 100,000 tokens costs a frontend's loop: its longest single turn, and whether later tokens cost more.

Runs in one process: text in, pieces and frames out. `python -m bench.long_replies --help`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from frontend.dialects.anthropic import ANTHROPIC
from frontend.dialects.base import (
    ChoiceFinished,
    ChoiceStarted,
    ChoiceText,
    ReplyEvent,
    ReplyFacts,
    ReplyFinished,
    WholeChoice,
)
from frontend.dialects.dialect import Dialect
from frontend.dialects.openai_chat import CHAT
from frontend.dialects.openai_completions import COMPLETIONS
from frontend.dialects.openai_responses import responses_dialect
from frontend.dialects.openai_responses_items import Recalled
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.sse import frame
from frontend.text.structure import PLAIN_TEXT, ReplyForm, ReplyStructure
from protocol.messages import Usage
from tests.frontend.parsers.generated_calls import Call, form_of, templates, written

_TOKEN_CHARACTERS: Final = 4
_PROSE: Final = "The convoy left at dawn, and 3 < 4; nobody had counted the bridges.\n"
_STOPS: Final = ("\n\nUser:", "<|end|>", "The convoy halts", "bridges.\n\n")


class Case(NamedTuple):
    """A reply's text, and what it is read as."""

    name: str
    form: ReplyForm
    text: str
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time: of the longest turn, of the last one, and of each half of the others."""

    longest_s: float
    last_s: float
    first_half_s: float
    second_half_s: float


def cost_of(turns: Iterator[Callable[[], object]]) -> Cost:
    """Runs the turns in order; the last of them ends the reply."""
    spent: list[float] = []
    for turn in turns:
        began_s = time.thread_time()
        turn()
        spent.append(time.thread_time() - began_s)
    *others, last_s = spent
    middle = len(others) // 2
    return Cost(max(spent), last_s, sum(others[:middle]), sum(others[middle:]))


def reading(case: Case) -> Iterator[Callable[[], object]]:
    """A turn for each token's text, and the reply's end."""
    structure = ReplyStructure(case.form, case.stops, include_stop=False)
    for at in range(0, len(case.text), _TOKEN_CHARACTERS):
        piece = case.text[at : at + _TOKEN_CHARACTERS]
        yield lambda piece=piece: structure.feed(piece)
    yield structure.finish


def cases(characters: int) -> list[Case]:
    """Text, stop strings, reasoning, and what models repeat without end; then one argument for each format of calls."""
    prose = _PROSE * (characters // len(_PROSE))
    think, hermes = REASONING_FORMATS["think"], TOOL_FORMATS["hermes"]
    looking = ReplyForm(call_format=hermes, tools=form_of(templates()["hermes"]).tools, reasoning=think)
    found = [
        Case("text", PLAIN_TEXT, prose),
        Case("text, stop strings", PLAIN_TEXT, prose, _STOPS),
        Case("reasoning", looking, f"<think>\n{prose}</think>\n"),
        Case("line breaks", looking, "\n" * characters),
        Case("line breaks in reasoning", looking, "<think>\n" + "\n" * characters),
    ]
    lines = "\n".join([f'    print("line {number} of many", x[{number}])' for number in range(characters // 40)])
    numbers = list(range(characters // 7))
    for name, template in templates().items():
        form = form_of(template)
        if form.call_format is None:
            continue
        found.append(Case(f"{name}: a string", form, written(template, [Call("write-file", {"content": lines})])))
        found.append(Case(f"{name}: an array", form, written(template, [Call("everything", {"grid": numbers})])))
    return found


def dialects() -> dict[str, tuple[Dialect, dict[str, Any]]]:
    """Each with the body of a small request."""
    messages = [{"role": "user", "content": "x"}]
    return {
        "chat": (CHAT, {"messages": messages}),
        "completions": (COMPLETIONS, {"prompt": "x"}),
        "messages": (ANTHROPIC, {"model": "m", "max_tokens": 1, "messages": messages}),
        "responses": (responses_dialect(Recalled()), {"input": "x"}),
    }


def telling(dialect: Dialect, body: dict[str, Any], tokens: int) -> Iterator[Callable[[], object]]:
    """A turn for each event of a stream."""
    framer = dialect.framer(_FACTS, dialect.parse(body))

    def turn(*events: ReplyEvent) -> list[bytes]:
        return [frame(sent.content, sent.name) for event in events for sent in framer.frames(event)]

    yield lambda: turn(ChoiceStarted(0))
    for _ in range(tokens):
        yield lambda: turn(ChoiceText(0, " fox"))
    yield lambda: turn(ChoiceFinished(0, "stop"), ReplyFinished(_usage(tokens)))


def whole(dialect: Dialect, body: dict[str, Any], tokens: int) -> Iterator[Callable[[], object]]:
    """The one turn in which a reply that is not streamed is put together."""
    choice = WholeChoice(0)
    for event in [ChoiceStarted(0), *[ChoiceText(0, " fox")] * tokens, ChoiceFinished(0, "stop")]:
        choice.add(event)
    generation = dialect.parse(body)
    yield lambda: None
    yield lambda: msgspec.json.encode(dialect.whole(_FACTS, generation, [choice], _usage(tokens)))


_FACTS: Final = ReplyFacts(id="resp_1", model="m", created=0)


def _usage(tokens: int) -> Usage:
    return Usage(prompt_tokens=1, completion_tokens=tokens)


def _line(name: str, cost: Cost, turns: int) -> str:
    halves = cost.second_half_s / cost.first_half_s if cost.first_half_s else 1.0
    each_us = (cost.first_half_s + cost.second_half_s) / turns * 1e6
    return (
        f"{name:28} {each_us:6.1f} us a turn, second half over first {halves:5.2f};"
        f" longest {cost.longest_s * 1e3:7.2f} ms, last {cost.last_s * 1e3:7.2f} ms"
    )


def main() -> None:
    """Reads and tells each kind of long reply."""
    parser = argparse.ArgumentParser(prog="python -m bench.long_replies", description=main.__doc__)
    parser.add_argument("--tokens", type=int, default=100_000, help="of four characters each")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    tokens: int = options.tokens
    for case in cases(tokens * _TOKEN_CHARACTERS):
        if case.name.startswith(options.only):
            print(_line(case.name, cost_of(reading(case)), len(case.text) // _TOKEN_CHARACTERS), flush=True)
    for name, (dialect, body) in dialects().items():
        if name.startswith(options.only):
            print(_line(f"{name}, streamed", cost_of(telling(dialect, body, tokens)), tokens))
            print(_line(f"{name}, whole", cost_of(whole(dialect, body, tokens)), tokens))


if __name__ == "__main__":
    main()
