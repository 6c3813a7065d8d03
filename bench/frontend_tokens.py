"""What the text machine costs a frontend: tokens per second of processor time, over 64 replies in turns.

Runs in one process: ids in, events out, as the handler hears them. `python -m bench.frontend_tokens --help`.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from frontend.choice import ChoiceTexts, LiveChoice
from frontend.dialects.base import ChatPrompt, Generation, ReplyFacts, Tool
from frontend.dialects.openai_chat import CHAT
from frontend.model_text import ModelText, load_model_text
from frontend.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from frontend.sse import frame
from frontend.stream import RowMailbox
from frontend.text.structure import PLAIN_TEXT, ReplyForm
from protocol.codec import pack_ids
from protocol.messages import BosRule, Epoch, RowDelta, Submit, SubmitId, TokenPrompt

_PROSE: Final = (
    "A convoy of lorries goes over the long bridge in the morning, and while the river is quiet below, "
    "the drivers count one, two, three < four, and tell each other of the cities that they have seen.\n\n"
)
_ARGUMENTS: Final = {"path": "src/main.py", "content": 'def main() -> None:\n    print("hello, \\"world\\"")\n' * 20}
_TEXT: Final = {"type": "string"}
TOOLS: Final = {
    "write_file": Tool(name="write_file", parameters={"properties": {"path": _TEXT, "content": _TEXT}}),
}


@dataclass(frozen=True, slots=True)
class Mix:
    """Replies of one kind: their text, said over and over, and what it is read as."""

    text: str
    form: ReplyForm


def mixes() -> dict[str, Mix]:
    """Plain text; the same where reasoning and calls are looked for; reasoning; calls, as JSON and in tags."""
    hermes, coder, think = TOOL_FORMATS["hermes"], TOOL_FORMATS["qwen3_coder"], REASONING_FORMATS["think"]
    looking = ReplyForm(call_format=hermes, tools=TOOLS, reasoning=think)
    call = json.dumps({"name": "write_file", "arguments": _ARGUMENTS})
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in _ARGUMENTS.items())
    tagged = f"<tool_call>\n<function=write_file>\n{values}</function>\n</tool_call>\n"
    return {
        "plain": Mix(_PROSE, PLAIN_TEXT),
        "looking": Mix(_PROSE, looking),
        "reasoning": Mix(f"<think>\n{_PROSE * 4}</think>\n\n", looking),
        "calls as JSON": Mix(f"<tool_call>\n{call}\n</tool_call>\n", looking),
        "calls in tags": Mix(tagged, ReplyForm(call_format=coder, tools=TOOLS, reasoning=think)),
    }


def tokens_per_cpu_s(text: ModelText, mix: Mix, streams: int, tokens: int) -> float:
    """One run: a token a step for each stream, made to frames of bytes."""
    ids = text.tokenizer.encode_rendered(mix.text)
    ids = (ids * (tokens // len(ids) + 1))[:tokens]
    generation = Generation(model=None, prompts=(ChatPrompt(()),), is_stream=True)
    sinks = [_sink(text, mix.form, generation, index) for index in range(streams)]
    began_s = time.process_time()
    for id_ in ids:
        packed = pack_ids([id_])
        for sink in sinks:
            sink(packed)
    return tokens * streams / (time.process_time() - began_s)


def _sink(text: ModelText, form: ReplyForm, generation: Generation, index: int) -> Callable[[bytes], int]:
    id_ = SubmitId(f"r/{index}")
    submit = Submit(epoch=Epoch("e"), id=id_, group="r", model="m", prompt=TokenPrompt(ids=pack_ids([1])))
    mailbox = RowMailbox(submit, asyncio.Event())
    choice = LiveChoice(mailbox, ChoiceTexts(text, generation, form), None)
    framer = CHAT.framer(ReplyFacts(id="chatcmpl-x", model="m", created=0), generation)

    def hear(tokens: bytes) -> int:
        mailbox.put_delta(RowDelta(id=id_, tokens=tokens))
        mailbox.ring()
        news = mailbox.take()
        assert news is not None
        frames = [frame(sent.content, sent.name) for event in choice.hear(news) for sent in framer.frames(event)]
        return sum(map(len, frames))

    return hear


def main() -> None:
    """Measures each kind of reply in turns, and prints medians."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontend_tokens", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a model folder; only its tokenizer is read")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=500, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    text = load_model_text(options.model, BosRule())
    kinds = mixes()
    runs: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, mix in kinds.items():
            runs[name].append(tokens_per_cpu_s(text, mix, options.streams, options.tokens))
    for name, found in runs.items():
        print(
            f"{name:15} {statistics.median(found):9,.0f} tokens per CPU second"
            f" (of {options.rounds} rounds {min(found):,.0f} to {max(found):,.0f})"
        )


if __name__ == "__main__":
    main()
