"""The grammar bench compares like with like, and its rows do not end within it."""

import json

from bench.grammar_step import RECORDS, ConstrainedTurn, FreeTurn, added
from bench.step_runners import Constrained, fixed_prompts
from protocol.messages import Grammar
from tests.fakes.grammars import grammar_tokenizer
from tests.fakes.models import tiny_model


def test_the_ratio_is_of_the_same_round() -> None:
    """A round that was slow for both counts as any other."""
    assert added([10.0, 100.0, 10.0], [11.0, 110.0, 12.0]) == 1.1


def test_constrained_rows_keep_running() -> None:
    """After as many steps as the bench takes every row is still told one token a step."""
    model = tiny_model("llama")
    prompts = fixed_prompts(8, model.args.vocab_size)
    constrained = Constrained(grammar_tokenizer(), Grammar(kind="json_schema", text=json.dumps(RECORDS)), every=4)
    turn = ConstrainedTurn(model, prompts, constrained)
    free = FreeTurn(model, prompts)
    for _ in range(60):
        turn.step()
        free.step()
    rows = list(turn._loop._batch)
    assert [row.grammar is not None for row in rows] == [index % 4 == 0 for index in range(8)]
    assert len(list(free._loop._batch)) == 8
