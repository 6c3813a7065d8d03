"""The fixed prompts of every load run, the same in every round: SmolLM2 answers each with more than 128 tokens."""

from typing import Final

_OPENINGS: Final = (
    "Tell a long story about",
    "Write a fairy tale about",
    "Write a long letter about",
    "Explain to a child, at length,",
    "Give a long speech about",
    "Write many verses about",
    "Tell the full history of",
    "Write a long chapter about",
)
_SUBJECTS: Final = (
    "an old lighthouse and the sailors who love it",
    "a market in the mountains and its best bread",
    "the first winter of a young fox in the forest",
    "a train that crosses the desert by night",
    "two sisters who repair clocks by the river",
    "a garden on the roof of a very tall house",
    "the map that a captain hid in his library",
    "a village where every bell has its own name",
)


def prompt_of(index: int) -> str:
    """The prompt of stream `index`; 64 differ."""
    opening = _OPENINGS[index % len(_OPENINGS)]
    subject = _SUBJECTS[(index + index // len(_OPENINGS)) % len(_SUBJECTS)]
    return f"{opening} {subject}."


def raw_prompt_of(index: int) -> str:
    """The same prompt with the beginning of an answer, for a model that gets it without a chat's markers."""
    return f"{prompt_of(index)} Once upon a time,"
