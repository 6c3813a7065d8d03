"""best_of: the likeliest rows of each prompt, by log-probability per token."""

from frontend.best_of import likeliest
from frontend.dialects.base import Generation, TokenChance, TokenEntry, WholeChoice


def row(index: int, *logprobs: float, prompt_logprobs: tuple[float, ...] = ()) -> WholeChoice:
    """A finished row with these log-probabilities."""
    entries = [TokenEntry(TokenChance(5, b"x", value), (), 0) for value in (*prompt_logprobs, *logprobs)]
    return WholeChoice(index, [f"row {index}"], "stop", entries, len(prompt_logprobs))


def test_the_mean_decides_not_the_sum() -> None:
    """A long likely row beats a short unlikely one; the choices are numbered anew."""
    rows = [row(0, -2.0), row(1, -1.0, -1.0, -1.0), row(2, -1.5, -0.25)]
    chosen = likeliest(rows, Generation(model=None, prompts=(), choices=2, best_of=3))
    assert [(choice.choice, choice.text) for choice in chosen] == [(0, "row 2"), (1, "row 1")]


def test_each_prompt_has_its_own() -> None:
    """Of equals the earlier one."""
    rows = [row(0, -3.0), row(1, -2.0), row(2, -1.0), row(3, -1.0)]
    chosen = likeliest(rows, Generation(model=None, prompts=(), choices=1, best_of=2))
    assert [(choice.choice, choice.text) for choice in chosen] == [(0, "row 1"), (1, "row 2")]


def test_an_echoed_prompt_does_not_count() -> None:
    """It is the same for all, but would weigh more in short rows."""
    prompt = (-9.0,) * 4
    rows = [row(0, -1.0, prompt_logprobs=prompt), row(1, *[-2.0] * 50, prompt_logprobs=prompt)]
    chosen = likeliest(rows, Generation(model=None, prompts=(), choices=1, best_of=2))
    assert [choice.text for choice in chosen] == ["row 0"]


def test_a_row_without_tokens_comes_last() -> None:
    """Nothing is known of how likely it was."""
    chosen = likeliest([row(0), row(1, -99.0)], Generation(model=None, prompts=(), choices=1, best_of=2))
    assert [choice.text for choice in chosen] == ["row 1"]


def test_without_best_of_nothing_moves() -> None:
    """Also when log-probabilities are there."""
    rows = [row(0, -3.0), row(1, -1.0)]
    assert likeliest(rows, Generation(model=None, prompts=(), choices=2)) == rows
