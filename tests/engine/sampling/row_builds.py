"""Rows for the sampler's tests, made as the engine makes them, and one call that samples for them."""

from typing import Any

import mlx.core as mx

from engine.row import Row, RowKey, make_row
from engine.sampling.sampler import Sampled, plan_sampling, sample
from protocol.codec import pack_ids
from protocol.messages import Submit, SubmitId, TokenPrompt
from protocol.sampling import Sampling
from tests.fakes.loop_driver import facts_of
from tests.fakes.models import tiny_model

EOS = 7


def row_of(sampling: Sampling, *, prompt: tuple[int, ...] = (1,), drawn: int = 0, **changes: Any) -> Row:
    """A row at its first token, or with `drawn` samples behind it that left no tokens."""
    submit = Submit(
        epoch="e",
        id=SubmitId("r"),
        group="r",
        model="model",
        prompt=TokenPrompt(ids=pack_ids(list(prompt))),
        sampling=sampling,
        **changes,
    )
    row = make_row(RowKey(b"c", submit.id), submit, facts_of(tiny_model("llama"), eos_ids=(EOS,)), 0.0)
    row.drawn = drawn
    return row


def sampled(rows: list[Row], logits: mx.array) -> Sampled:
    """One sample of rows whose newest token is the last of their prompt."""
    inputs = mx.array([row.to_prefill[-1] for row in rows], dtype=mx.uint32)
    return sample(logits, plan_sampling(rows), inputs)


def tokens_of(rows: list[Row], logits: mx.array) -> list[int]:
    """The tokens of one sample."""
    return sampled(rows, logits).tokens.tolist()  # pyright: ignore[reportReturnType]
