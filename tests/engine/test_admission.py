"""What a Submit must be to become a row."""

from math import inf, nan
from typing import Any

import msgspec
import pytest

from engine.mailbox import SubmitHeard
from protocol.errors import ErrorCode
from protocol.messages import SubmitId, TokenPrompt
from protocol.sampling import Sampling, TokenBias
from tests.fakes.loop_driver import CLIENT, LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"model": "other"}, ErrorCode.MODEL_NOT_FOUND, "model"),
        ({"adapter": "x"}, ErrorCode.MODEL_NOT_FOUND, "adapters"),
        ({"sampling": Sampling(logit_bias=(TokenBias(id=512, bias=1.0),))}, ErrorCode.INVALID_REQUEST, "logit_bias"),
        ({"sampling": Sampling(bad_words=((1,), (2, 512)))}, ErrorCode.INVALID_REQUEST, "bad_words"),
        ({"sampling": Sampling(allowed_ids=(3, 2**31))}, ErrorCode.INVALID_REQUEST, "allowed_ids"),
        ({"stop_ids": (3, 512)}, ErrorCode.INVALID_REQUEST, "stop_ids"),
        ({"sampling": Sampling(xtc_spared_ids=(512,))}, ErrorCode.INVALID_REQUEST, "xtc_spared_ids"),
        ({"sampling": Sampling(presence_penalty=inf)}, ErrorCode.INVALID_REQUEST, "presence_penalty"),
        ({"sampling": Sampling(logit_bias=(TokenBias(id=3, bias=nan),))}, ErrorCode.INVALID_REQUEST, "logit_bias"),
    ],
)
def test_what_cannot_be_served_is_rejected_by_name(
    driver: LoopDriver, changes: dict[str, Any], code: ErrorCode, param: str
) -> None:
    """What the engine cannot do, or makes no sense, is refused with the field's name and never touches the device."""
    driver.submit("a", prompt_of(5), **changes)
    driver.submit("b", prompt_of(5), max_tokens=3)
    driver.run_until_idle()
    error = driver.mailbox.rejected[SubmitId("a")]
    assert (error.code, error.param) == (code, param)
    assert len(driver.tokens("b")) == 3


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ([], ErrorCode.INVALID_REQUEST),
        ([100_000], ErrorCode.INVALID_REQUEST),
        (prompt_of(4_096), ErrorCode.CONTEXT_LENGTH_EXCEEDED),
    ],
)
def test_bad_prompts_are_rejected(driver: LoopDriver, prompt: list[int], code: ErrorCode) -> None:
    """An empty, foreign or too long prompt costs its own request only."""
    driver.submit("a", prompt)
    driver.turn()
    assert driver.mailbox.rejected[SubmitId("a")].code == code
    assert driver.live_ids() == []


@pytest.mark.parametrize(
    ("changes", "param"),
    [({"prompt": TokenPrompt(ids=b"abc")}, "prompt"), ({"generated": b"abcde"}, "generated")],
)
def test_token_ids_that_are_cut_short_are_rejected(driver: LoopDriver, changes: dict[str, Any], param: str) -> None:
    """A9: ids that are not whole u32 cost their own Submit, and neither the engine nor another row."""
    driver.submit("a", prompt_of(5), max_tokens=3)
    whole = driver.mailbox.incoming[0]
    assert isinstance(whole, SubmitHeard)
    bad = msgspec.structs.replace(whole.submit, id=SubmitId("b"), **changes)
    driver.mailbox.incoming.append(SubmitHeard(CLIENT, bad))
    driver.run_until_idle()
    error = driver.mailbox.rejected[SubmitId("b")]
    assert (error.code, error.param) == (ErrorCode.MALFORMED_FRAME, param)
    assert len(driver.tokens("a")) == 3


def test_a_running_id_is_not_taken_twice(driver: LoopDriver) -> None:
    """A second Submit with a live id is rejected; the first goes on."""
    driver.submit("a", prompt_of(5), max_tokens=3)
    driver.submit("a", prompt_of(6), max_tokens=3)
    driver.run_until_idle()
    assert driver.mailbox.rejected[SubmitId("a")].code == ErrorCode.DUPLICATE_ID
    assert driver.tokens("a") == solo_tokens(tiny_model("llama"), prompt_of(5), 3)


def test_a_full_queue_asks_to_come_back(driver: LoopDriver) -> None:
    """Beyond max_waiting a Submit is rejected with a time to retry."""
    facts = facts_of(tiny_model("llama"), max_rows=1)
    driver = LoopDriver(tiny_model("llama"), facts)
    for index in range(facts.limits.max_waiting + 1):
        driver.submit(str(index), prompt_of(3), max_tokens=1)
    driver.turn()
    error = driver.mailbox.rejected[SubmitId(str(facts.limits.max_waiting))]
    assert (error.code, error.retry_after_s) == (ErrorCode.QUEUE_FULL, 1.0)
