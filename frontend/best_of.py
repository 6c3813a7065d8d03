"""`best_of`: which of a prompt's finished rows become its choices. Pure functions."""

import math
from collections.abc import Sequence

from frontend.dialects.base import Generation, WholeChoice


def likeliest(rows: Sequence[WholeChoice], generation: Generation) -> list[WholeChoice]:
    """The `n` rows of each prompt with the highest log-probability per token, best first, numbered anew.

    OpenAI's definition. Of equals the earlier row wins; a row without tokens comes last.
    """
    count = generation.rows_per_prompt
    if count == generation.choices:
        return list(rows)
    chosen: list[WholeChoice] = []
    for first in range(0, len(rows), count):
        ranked = sorted(rows[first : first + count], key=_mean_logprob, reverse=True)
        chosen += ranked[: generation.choices]
    for index, row in enumerate(chosen):
        row.choice = index
    return chosen


def _mean_logprob(row: WholeChoice) -> float:
    own = row.entries[row.prompt_entries :]
    logprobs = [entry.token.logprob for entry in own if entry.token.logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs else -math.inf
