"""What may be prefilled between two steps, and together."""

import pytest

from engine.gap import GAP_CHUNKS, Gap
from engine.row import Row, RowKey, make_row
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from tests.fakes.loop_driver import EPOCH, facts_of
from tests.fakes.models import tiny_model

CHUNK_TOKENS = 100
OVERHEAD_TOKENS = CHUNK_TOKENS // 4


def _row(prompt_tokens: int, prefilled: int = 0) -> Row:
    prompt = TokenPrompt(ids=pack_ids([5] * prompt_tokens))
    submit = Submit(epoch=EPOCH, id=SubmitId("a"), group="a", model="model", prompt=prompt)
    row = make_row(RowKey(b"client", submit.id), submit, facts_of(tiny_model("llama")), 0.0)
    row.prefilled = prefilled
    return row


@pytest.mark.parametrize(
    ("prompts", "together"),
    [
        ([30, 30, 30], 3),
        ([30], 0),  # nobody to share with
        ([30, 1, 30], 0),  # nothing to prefill
        ([90, 101, 102], 2),  # the third is longer than a chunk
        ([90, 6, 6], 0),  # its padding would cost more than a forward of its own
        ([90, 90, 90, 90, 90], 4),  # a full gap
        ([30, 30, 90], 2),
    ],
)
def test_rows_go_together_where_that_costs_less(prompts: list[int], together: int) -> None:
    """Short prompts share a chunk as long as the padding costs less than one more forward, and the gap holds it."""
    rows = [_row(tokens) for tokens in prompts]
    assert Gap(CHUNK_TOKENS).rows_together(rows) == rows[:together]


@pytest.mark.parametrize(("most_prompts", "together"), [(None, 3), (3, 3), (2, 2), (1, 0)])
def test_no_more_prompts_go_together_than_allowed(most_prompts: int | None, together: int) -> None:
    """--prompt-concurrency; a lone one goes its own way."""
    rows = [_row(30) for _ in range(3)]
    assert Gap(CHUNK_TOKENS, most_prompts).rows_together(rows) == rows[:together]


def test_a_row_whose_prefill_has_begun_goes_on_alone() -> None:
    """Its caches exist already."""
    assert Gap(CHUNK_TOKENS).rows_together([_row(60, prefilled=20), _row(30)]) == []


def test_what_was_spent_leaves_less_to_share() -> None:
    """A second shared chunk of one gap holds what the first one left."""
    gap = Gap(CHUNK_TOKENS)
    rows = [_row(51) for _ in range(9)]
    gap.charge(2 * CHUNK_TOKENS - OVERHEAD_TOKENS)
    left_tokens = (GAP_CHUNKS - 2) * CHUNK_TOKENS - OVERHEAD_TOKENS
    assert len(gap.rows_together(rows)) == left_tokens // 50


@pytest.mark.parametrize(
    ("has_batch", "spent", "head", "is_spent"),
    [
        (True, 0, _row(1_000), False),  # something always goes
        (True, 50, _row(101), True),  # a long row waits for the next gap
        (True, 50, _row(60, prefilled=20), True),
        (True, 275, _row(75), False),  # 275 + 25 + 75 + 25 tokens
        (True, 276, _row(75), True),
        (False, 25, _row(25), False),
        (False, 26, _row(25), True),  # before the first step, one chunk
    ],
)
def test_a_gap_ends_where_its_budget_does(has_batch: bool, spent: int, head: Row, is_spent: bool) -> None:
    """Each chunk is charged its tokens and what streaming the weights once is worth."""
    gap = Gap(CHUNK_TOKENS)
    if spent:
        gap.charge(spent)
    assert gap.is_spent(head, has_batch) is is_spent
