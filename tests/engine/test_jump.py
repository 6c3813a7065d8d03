"""A lone row jumps over forced tokens: fewer forwards, and otherwise the same row."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from engine import decode, loop, prefill
from engine.constrained import MaskedStep
from engine.jump import LEAST_TOKENS
from protocol.messages import Grammar, LogprobsWanted
from protocol.sampling import Sampling
from tests.fakes.grammars import EOS_ID, text_of
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import SPECS, prompt_of, tiny_model

RECORD = json.dumps(
    {
        "type": "object",
        "properties": {
            "a_long_name_that_is_forced": {"type": "string", "maxLength": 4},
            "another_one": {"enum": ["the first of two", "the second of two"]},
            "third": {"const": "and this is all constant"},
        },
        "required": ["a_long_name_that_is_forced", "another_one", "third"],
        "additionalProperties": False,
    }
)
SETTINGS = [
    {"sampling": Sampling()},
    {"sampling": Sampling(temperature=1.0), "seed": 4},
    {"sampling": Sampling(temperature=1.0, frequency_penalty=1.5, frequency_context=0, top_k=9), "seed": 8},
    {"sampling": Sampling(), "max_tokens": 17},
    {"sampling": Sampling(), "max_tokens": 18},
    {"sampling": Sampling(temperature=1.0), "seed": 2, "ignore_eos": True, "min_tokens": 30},
]


@contextmanager
def no_jumps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every forced token is sampled."""
    with monkeypatch.context() as patched:
        patched.setattr("engine.jump.LEAST_TOKENS", 10_000)
        yield


def new_driver(architecture: str = "llama", **options: Any) -> LoopDriver:
    """A loop with the tiny tokenizer's EOS."""
    model = tiny_model(architecture)
    return LoopDriver(model, facts_of(model, eos_ids=(EOS_ID,)), **options)


def said(driver: LoopDriver, **changes: Any) -> tuple[list[int], Any]:
    """A lone row's tokens and its finish, without its timings."""
    driver.submit(
        "a", prompt_of(7), **{"max_tokens": 300, "grammar": Grammar(kind="json_schema", text=RECORD)} | changes
    )
    driver.run_until_idle()
    finish = driver.finish("a")
    return driver.tokens("a"), (finish.reason, finish.usage, finish.stop_id)


@pytest.mark.parametrize("architecture", sorted(SPECS))
@pytest.mark.parametrize("settings", SETTINGS, ids=["greedy", "hot", "penalties", "limit", "limit+1", "min_tokens"])
def test_a_row_that_jumps_says_the_same(
    architecture: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens, counts, limit and finish are those of the row that samples each token."""
    with no_jumps(monkeypatch):
        sampled = said(new_driver(architecture), **settings)
    assert said(new_driver(architecture), **settings) == sampled
    if sampled[1][0] == "stop":
        assert json.loads(text_of(sampled[0]))["third"] == "and this is all constant"


def test_a_jump_saves_forwards(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under half of the forwards of the row that samples every token; the jumped ones go as chunks."""
    chunks: list[int] = []
    original = prefill.launch_known

    def recording(model: Any, group: Any, tokens: list[int]) -> None:
        chunks.append(len(tokens))
        original(model, group, tokens)

    monkeypatch.setattr(prefill, "launch_known", recording)
    tokens, _ = said(new_driver())
    jumped = events.count("launch_forward") + len(chunks)
    events.clear()
    with no_jumps(monkeypatch):
        said(new_driver())
    assert events.count("launch_forward") >= len(tokens) - 1
    assert jumped < len(tokens) / 2
    assert all(chunk >= LEAST_TOKENS - 1 for chunk in chunks)


def test_a_jump_is_bounded_by_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long constant goes as several chunks: no step is longer than one of prefill."""
    chunks: list[int] = []
    original = prefill.launch_known

    def recording(model: Any, group: Any, tokens: list[int]) -> None:
        chunks.append(len(tokens))
        original(model, group, tokens)

    monkeypatch.setattr(prefill, "launch_known", recording)
    text = "counts one two three four " * 6
    tokens, _ = said(new_driver(chunk_tokens=16), grammar=Grammar(kind="choice", text=json.dumps([text])))
    assert text_of(tokens) == text
    assert max(chunks) <= 15
    assert len(chunks) > 3


def test_rows_that_join_after_a_jump_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joiner finds the register and the caches of a row that has jumped as of any other."""
    with no_jumps(monkeypatch):
        alone, _ = said(new_driver())
    driver = new_driver()
    driver.submit("a", prompt_of(7), max_tokens=300, grammar=Grammar(kind="json_schema", text=RECORD))
    while len(driver.tokens("a")) < 5:
        driver.turn()
    driver.submit("free", prompt_of(9, 1), max_tokens=9)
    driver.run_until_idle()
    assert driver.tokens("a") == alone


def test_a_row_with_log_probabilities_does_not_jump(events: list[str]) -> None:
    """Each of its tokens needs its own distribution."""
    driver = new_driver()
    tokens, _ = said(driver, logprobs=LogprobsWanted(top=2))
    told = [entry for delta in driver.deltas for entry in delta.logprobs or ()]
    assert len(told) == len(tokens)
    assert events.count("launch_forward") >= len(tokens) - 1


def test_a_jump_waits_for_no_device(monkeypatch: pytest.MonkeyPatch, events: list[str]) -> None:
    """Between two reads a jump launches, and reads nothing: what it tells is known beforehand."""
    reads: list[int] = []
    original = decode.read

    def recording(register: Any) -> list[int]:
        reads.append(register.size)
        return original(register)

    monkeypatch.setattr(decode, "read", recording)
    tokens, _ = said(new_driver(), grammar=Grammar(kind="choice", text='["one two three four five six"]'))
    assert len(tokens) > 8
    assert reads == []
    assert events.count("launch_sample") == 0


def test_a_jump_waits_for_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their threads own the grammar until then, also in the step after a jump, which has nothing to read."""
    order: list[str] = []
    for owner, name in ((MaskedStep, "wait"), (loop, "jump_forward")):
        original = getattr(owner, name)

        def recording(*arguments: Any, name: str = name, original: Any = original) -> Any:
            order.append(name)
            return original(*arguments)

        monkeypatch.setattr(owner, name, recording)
    said(new_driver())
    jumps = [index for index, name in enumerate(order) if name == "jump_forward"]
    assert len(jumps) > 5
    assert {order[index - 1] for index in jumps} == {"wait"}
