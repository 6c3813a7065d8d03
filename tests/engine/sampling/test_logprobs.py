"""Log-probabilities: mlx-lm's own numbers, for the rows that asked, one per emitted token."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_logits_processors

from engine import outbox
from engine.sampling.logprobs import logprobs_of
from protocol.codec import pack_ids, unpack_ids
from protocol.messages import LogprobsWanted, TokenLogprobs
from protocol.sampling import Sampling
from tests.engine.sampling.row_builds import row_of, sampled
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model

TOLERANCE = 1e-4


def _told(driver: LoopDriver, id_: str) -> list[TokenLogprobs]:
    return [each for delta in driver.deltas if delta.id == id_ for each in delta.logprobs or ()]


def _oracle(prompt: list[int], count: int, **processors: Any) -> list[tuple[int, np.ndarray]]:
    steps = generate_step(
        mx.array(prompt),
        tiny_model("llama"),
        max_tokens=count,
        logits_processors=make_logits_processors(**processors) if processors else None,
    )
    return [(token, np.array(logprobs)) for token, logprobs in steps]


def _assert_equal(told: list[TokenLogprobs], oracle: list[tuple[int, np.ndarray]], top: int) -> None:
    assert len(told) == len(oracle)
    for each, (token, logprobs) in zip(told, oracle, strict=True):
        assert each.logprob == pytest.approx(logprobs[token], abs=TOLERANCE)
        best = np.argsort(-logprobs)[:top]
        assert unpack_ids(each.top_ids) == best.tolist()
        assert list(each.top) == pytest.approx(logprobs[best].tolist(), abs=TOLERANCE)


@pytest.mark.parametrize("top", [0, 1, 5, 20])
def test_a_row_is_told_the_oracles_numbers(top: int) -> None:
    """Alone from its first token, then in a batch with others joining and leaving, and only it."""
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("a", prompt_of(9), max_tokens=16, logprobs=LogprobsWanted(top=top))
    driver.turn(3)
    driver.submit("b", prompt_of(20, 2), max_tokens=4)
    driver.submit("c", prompt_of(5, 3), max_tokens=30, logprobs=LogprobsWanted(top=2))
    driver.run_until_idle()
    _assert_equal(_told(driver, "a"), _oracle(prompt_of(9), 16), top)
    _assert_equal(_told(driver, "c"), _oracle(prompt_of(5, 3), 30), 2)
    assert _told(driver, "b") == []


def test_every_delta_has_one_entry_per_token() -> None:
    """Streams need no bookkeeping: entries travel with their tokens."""
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("a", prompt_of(9), max_tokens=12, logprobs=LogprobsWanted(top=3))
    driver.submit("b", prompt_of(200, 2), max_tokens=12, logprobs=LogprobsWanted(top=0))
    driver.run_until_idle()
    for delta in driver.deltas:
        assert len(delta.logprobs or ()) == len(unpack_ids(delta.tokens))


def test_they_come_after_the_processors_and_before_temperature() -> None:
    """Penalties show in them; temperature and the filters do not."""
    driver = LoopDriver(tiny_model("llama"))
    penalty = {"repetition_penalty": 1.4, "repetition_context_size": 20}
    driver.submit(
        "a", prompt_of(9), max_tokens=12, logprobs=LogprobsWanted(top=4), sampling=Sampling(repetition_penalty=1.4)
    )
    driver.run_until_idle()
    _assert_equal(_told(driver, "a"), _oracle(prompt_of(9), 12, **penalty), 4)
    logits = mx.random.normal((1, 512), key=mx.random.key(1))
    wanted = LogprobsWanted(top=5)
    for sampling in (Sampling(temperature=0.5, top_k=3, top_p=0.5, min_p=0.5), Sampling(temperature=2.0)):
        record = sampled([row_of(sampling, logprobs=wanted)], logits).logprobs
        assert record is not None
        best = np.sort(np.array(logits - mx.logsumexp(logits)))[0, ::-1][:5]
        assert list(record.told(0, 5).top) == pytest.approx(best.tolist(), abs=TOLERANCE)


def test_an_ending_stop_token_has_none() -> None:
    """What is not delivered is not told of either."""
    tokens = [token for token, _ in _oracle(prompt_of(8), 10)]
    eos = tokens[6]
    driver = LoopDriver(tiny_model("llama"), facts_of(tiny_model("llama"), eos_ids=(eos,)))
    driver.submit("a", prompt_of(8), logprobs=LogprobsWanted())
    driver.run_until_idle()
    assert driver.finish("a").stop_id == eos
    assert len(_told(driver, "a")) == len(driver.tokens("a")) == tokens.index(eos)


def test_impossible_alternatives_are_left_out() -> None:
    """JSON has no infinity: fewer alternatives, and a finite number for a token that could not be."""
    logits = mx.full((1, 64), -mx.inf)
    logits[0, 5] = 1.0
    record = logprobs_of(logits, mx.array([6], dtype=mx.uint32), 3)
    assert record.told(0, 3) == TokenLogprobs(logprob=-9999.0, top_ids=b"\x05\0\0\0", top=(0.0,))
    nothing = logprobs_of(mx.full((1, 64), -mx.inf), mx.array([6], dtype=mx.uint32), 1)
    assert nothing.told(0, 1) == TokenLogprobs(logprob=-9999.0)


def _prompt_oracle(prompt: list[int]) -> np.ndarray:
    """[L - 1, V]: of the tokens after each prefix of the prompt."""
    logits = tiny_model("llama")(mx.array(prompt)[None])[0, :-1]
    return np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def _told_of_prompt(driver: LoopDriver, id_: str) -> list[TokenLogprobs | None]:
    return [each for delta in driver.deltas if delta.id == id_ for each in delta.prompt_logprobs or ()]


@pytest.mark.parametrize("length", [1, 2, 9, 129, 300])
def test_a_prompt_has_one_entry_per_token_and_the_first_none(length: int) -> None:
    """Over any number of chunks, beside a running batch, they are those of one forward over the prompt."""
    driver = LoopDriver(tiny_model("llama"), chunk_tokens=256)
    driver.submit("other", prompt_of(12, 5), max_tokens=30)
    driver.turn(2)
    asked = LogprobsWanted(top=3, of_prompt=True)
    driver.submit("a", prompt_of(length), max_tokens=4, logprobs=asked, sampling=Sampling(presence_penalty=1.0))
    driver.submit("b", prompt_of(length, 3), max_tokens=4)
    driver.run_until_idle()
    told = _told_of_prompt(driver, "a")
    assert told[0] is None
    oracle = _prompt_oracle(prompt_of(length)) if length > 1 else []
    _assert_equal([each for each in told[1:] if each], list(zip(prompt_of(length)[1:], oracle, strict=True)), 3)
    assert len(told) == length
    assert [_told_of_prompt(driver, id_) for id_ in ("other", "b")] == [[], []]
    assert len(driver.tokens("a")) == len(_told(driver, "a")) == 4


def test_long_prompts_are_told_in_pieces_before_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """No delta holds more entries than the wire allows, and none comes after a token."""
    monkeypatch.setattr(outbox, "MAX_PROMPT_LOGPROBS", 100)
    driver = LoopDriver(tiny_model("llama"))
    driver.submit("a", prompt_of(250), max_tokens=3, logprobs=LogprobsWanted(of_prompt=True))
    driver.run_until_idle()
    # On a slow machine the prefill's progress is told between them.
    told = [delta for delta in driver.deltas if delta.prompt_logprobs or delta.tokens]
    assert [len(delta.prompt_logprobs or ()) for delta in told][:4] == [100, 100, 50, 0]
    assert sum(len(delta.prompt_logprobs or ()) for delta in told) == 250
    assert [len(delta.tokens) for delta in told[:3]] == [0, 0, 0]


def test_choices_share_the_prefill_and_each_is_told() -> None:
    """n rows of one prompt: one prefill, and the same entries for every choice."""
    driver = LoopDriver(tiny_model("llama"))
    asked = LogprobsWanted(top=1, of_prompt=True)
    for choice in range(3):
        driver.submit(f"{choice}", prompt_of(40), max_tokens=3, logprobs=asked, group="g", choice=choice)
    driver.run_until_idle()
    told = [_told_of_prompt(driver, f"{choice}") for choice in range(3)]
    assert len(told[0]) == 40
    assert told == [told[0]] * 3
    assert driver.loop._tally.prompt_tokens == 40


def test_a_replay_is_told_the_prompts_again_but_not_of_what_was_delivered() -> None:
    """The prompt's entries are as at first; delivered tokens are no part of the prompt."""
    driver = LoopDriver(tiny_model("llama"))
    asked = LogprobsWanted(top=2, of_prompt=True)
    driver.submit("a", prompt_of(20), max_tokens=8, logprobs=asked)
    driver.run_until_idle()
    driver.submit("b", prompt_of(20), max_tokens=8, logprobs=asked, generated=pack_ids(driver.tokens("a")[:5]))
    driver.run_until_idle()
    first, second = (_told_of_prompt(driver, id_) for id_ in ("a", "b"))
    assert len(second) == len(first) == 20
    assert [each.logprob for each in second if each] == pytest.approx(
        [each.logprob for each in first if each], abs=TOLERANCE
    )
    assert len(_told(driver, "b")) == 3
