"""Who of the rows that were admitted leads, and who comes along with whom."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prefill_queue import PrefillQueue
from engine.row import Row, RowKey, make_row
from protocol.codec import pack_ids
from protocol.messages import LogprobsWanted, ModelFacts, Submit, SubmitId, TokenPrompt
from tests.fakes.loop_driver import EPOCH, facts_of
from tests.fakes.models import tiny_model

FACTS: ModelFacts = facts_of(tiny_model("llama"))


def _row(number: int, client: str, group: str, prompt: list[int], *, generated: int = 0, scored: bool = False) -> Row:
    submit = Submit(
        epoch=EPOCH,
        id=SubmitId(str(number)),
        group=group,
        model="model",
        prompt=TokenPrompt(ids=pack_ids(prompt)),
        generated=pack_ids([7] * generated),
        logprobs=LogprobsWanted(top=1) if scored else None,
    )
    return make_row(RowKey(client.encode(), submit.id), submit, FACTS, 0.0)


ROWS = st.lists(
    st.builds(
        lambda client, group, prompt, generated, scored: (client, group, [5, *prompt], generated, scored),
        st.sampled_from("ab"),
        st.sampled_from("gh"),
        st.lists(st.integers(6, 7), max_size=2),
        st.integers(0, 1),
        st.booleans(),
    ),
    max_size=24,
)


@settings(deadline=None)
@given(rows=ROWS, leads=st.lists(st.tuples(st.integers(0, 23), st.integers(0, 23)), max_size=6))
def test_a_row_leads_unless_one_before_it_brings_its_prompt(
    rows: list[tuple[str, str, list[int], int, bool]], leads: list[tuple[int, int]]
) -> None:
    """As when each row is compared with every leader before it; who waits for another's chunk does not lead."""
    queue = PrefillQueue()
    made = [
        _row(number, client, group, prompt, generated=generated, scored=scored)
        for number, (client, group, prompt, generated, scored) in enumerate(rows)
    ]
    for follower, leader in leads:
        if leader < follower < len(made):
            made[follower].prefix.leader = made[leader]
            made[follower].prefix.leader_tokens = 1
    expected: list[Row] = []
    for row in made:
        queue.add(row)
        if not row.prefix.is_waiting and not any(row.is_sibling_of(leader) for leader in expected):
            expected.append(row)
    assert expected == list(queue.leaders())


@pytest.mark.parametrize("count", [32, 256])
def test_rows_of_different_requests_are_not_compared(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The work grows with the rows, not with their square."""
    queue = PrefillQueue()
    for number in range(count):
        queue.add(_row(number, "a", f"{number // 2}", [5, 6]))
    original: Callable[[Row, Row], bool] = Row.is_sibling_of
    compared: list[Row] = []

    def is_sibling_of(row: Row, other: Row) -> bool:
        compared.append(row)
        return original(row, other)

    monkeypatch.setattr(Row, "is_sibling_of", is_sibling_of)
    assert len(list(queue.leaders())) == count // 2
    assert len(compared) == count // 2
