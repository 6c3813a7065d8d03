"""D1, D3: whatever decodes beside a row, it draws as if alone: on the sampler, and through the loop."""

from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import pack_ids
from protocol.sampling import Sampling, TokenBias
from tests.engine.sampling.row_builds import row_of, tokens_of
from tests.fakes.loop_driver import LoopDriver
from tests.fakes.models import prompt_of, tiny_model

VOCABULARY = 512
_IDS = st.integers(0, VOCABULARY - 1)

SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.7, 1.0, 1.6]),
    top_k=st.sampled_from([0, 0, 5, 40]),
    top_p=st.sampled_from([1.0, 0.5, 0.9]),
    min_p=st.sampled_from([0.0, 0.02]),
    xtc_probability=st.sampled_from([0.0, 0.5]),
    xtc_threshold=st.just(0.02),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    repetition_context=st.sampled_from([0, 5, 20]),
    presence_penalty=st.sampled_from([0.0, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.4]),
    frequency_context=st.sampled_from([0, 20]),
    logit_bias=st.lists(_IDS, max_size=2, unique=True).map(lambda ids: tuple(TokenBias(id=i, bias=2.5) for i in ids)),
    bad_words=st.lists(st.lists(_IDS, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    allowed_ids=st.just(()) | st.lists(_IDS, min_size=30, max_size=90, unique=True).map(tuple),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(SAMPLINGS, st.integers(0, 2**63 - 1), st.integers(0, 99)), min_size=2, max_size=6), st.data())
def test_any_mix_of_settings_draws_as_each_row_alone(
    cases: list[tuple[Sampling, int, int]], data: st.DataObject
) -> None:
    """One sample of a mixed batch is each row's own sample of its own logits."""
    spread = data.draw(st.sampled_from([0.1, 2.0]))
    logits = mx.random.normal((len(cases), VOCABULARY), key=mx.random.key(data.draw(st.integers(0, 999)))) * spread

    def row(index: int) -> Any:
        sampling, seed, drawn = cases[index]
        return row_of(sampling, seed=seed, drawn=drawn, prompt=(index, 3, 4), min_tokens=index * 20)

    alone = [tokens_of([row(index)], logits[index : index + 1])[0] for index in range(len(cases))]
    assert tokens_of([row(index) for index in range(len(cases))], logits) == alone


_ROWS = st.tuples(SAMPLINGS, st.integers(0, 2**63 - 1), st.integers(1, 40), st.integers(0, 6))


@settings(max_examples=12, deadline=None)
@given(st.lists(_ROWS, min_size=2, max_size=4))
def test_rows_that_join_and_leave_tell_what_each_tells_alone(cases: list[tuple[Sampling, int, int, int]]) -> None:
    """D3 through the loop, on float32: mixed settings, lengths and join times change no token of anybody."""

    def submit(driver: LoopDriver, index: int) -> None:
        sampling, seed, length, _ = cases[index]
        driver.submit(str(index), prompt_of(length, index), sampling=sampling, seed=seed, max_tokens=6 + 5 * index)

    together = LoopDriver(tiny_model("llama"))
    waiting = sorted(range(len(cases)), key=lambda index: cases[index][3])
    while waiting or together.live_ids():
        while waiting and cases[waiting[0]][3] <= together.turns:
            submit(together, waiting.pop(0))
        together.turn()
    for index in range(len(cases)):
        alone = LoopDriver(tiny_model("llama"))
        submit(alone, index)
        alone.run_until_idle()
        assert together.tokens(str(index)) == alone.tokens(str(index))


@pytest.mark.parametrize("cut", [1, 2, 7, 19])
def test_a_replay_goes_on_with_every_setting(cut: int) -> None:
    """A row that goes on after `generated` has the penalties, bans and draws of one that never stopped."""
    sampling = Sampling(
        temperature=1.2,
        top_k=50,
        top_p=0.95,
        xtc_probability=0.5,
        xtc_threshold=0.02,
        repetition_penalty=1.2,
        frequency_penalty=0.3,
        frequency_context=0,
        bad_words=((5, 6), (9,)),
    )
    whole = LoopDriver(tiny_model("llama"))
    whole.submit("a", prompt_of(9), sampling=sampling, seed=11, max_tokens=30)
    whole.run_until_idle()
    tokens = whole.tokens("a")
    replay = LoopDriver(tiny_model("llama"))
    replay.submit("a", prompt_of(9), sampling=sampling, seed=11, max_tokens=30, generated=pack_ids(tokens[:cut]))
    replay.submit("b", prompt_of(30, 2), max_tokens=30)
    replay.run_until_idle()
    assert replay.tokens("a") == tokens[cut:]


def test_choices_of_one_prompt_draw_apart() -> None:
    """Equal rows but for their seeds: as many texts as seeds, each its own alone."""
    driver = LoopDriver(tiny_model("llama"))
    hot = {"sampling": Sampling(temperature=1.5, presence_penalty=0.5), "max_tokens": 12, "group": "g"}
    for seed in range(4):
        driver.submit(f"together {seed}", prompt_of(9), seed=seed, choice=seed, **hot)
    driver.run_until_idle()
    for seed in range(4):
        driver.submit(f"alone {seed}", prompt_of(9), seed=seed, **hot)
        driver.run_until_idle()
    together = [driver.tokens(f"together {seed}") for seed in range(4)]
    assert together == [driver.tokens(f"alone {seed}") for seed in range(4)]
    assert len({tuple(tokens) for tokens in together}) == 4
