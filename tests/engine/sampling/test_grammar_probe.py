"""Grammars that cannot take their first tokens are refused; whatever a client sends, it costs its own request."""

import json

import pytest

from engine.errors import EngineError
from engine.sampling import grammar_probe
from protocol.errors import ErrorCode
from protocol.messages import GrammarKind, SubmitId
from protocol.sampling import Sampling
from tests.engine.sampling.hostile_grammars import chain, hostile_grammars
from tests.fakes.grammars import EOS_ID, compiled, takes
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of, tiny_model
from tests.parity.oracle import solo_tokens

MANY_OPTIONAL = json.dumps({"type": "object", "properties": {f"p{index}": {} for index in range(2_000)}})
LETTERS_OR_MANY = 'start: "b" | "c" "a"{1000000}'


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("regex", "a{1000000}", "too"),
        ("regex", "(a{1000}){1000}", "too"),
        ("regex", "[bc]a{1000000}", "too many states"),
        ("lark", 'start: "a"{1000000}', "Too many items"),
        ("lark", LETTERS_OR_MANY, "Too many items"),
        ("json_schema", MANY_OPTIONAL, "max is 1000"),
    ],
)
def test_what_breaks_with_its_first_tokens_is_refused(kind: GrammarKind, text: str, words: str) -> None:
    """With the compiler's words, before any prefill, though llguidance has taken the grammar."""
    with pytest.raises(EngineError, match="does not compile") as caught:
        compiled(kind, text)
    assert (caught.value.code, caught.value.param) == (ErrorCode.INVALID_REQUEST, "grammar")
    assert words in caught.value.message


def test_what_is_slow_from_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody beside such a row would wait for each of its tokens."""
    monkeypatch.setattr(grammar_probe, "_MAX_START_CPU_S", 0.0)
    with pytest.raises(EngineError, match="a token takes too long"):
        compiled("regex", "nobody else sends this")


@pytest.mark.parametrize("kind", ["lark", "gbnf", "json_schema"])
def test_a_long_chain_of_rules_does_not_end_the_process(kind: GrammarKind) -> None:
    """It is followed by recursion, which needs more stack than a thread has by default."""
    assert takes(kind, chain(6_000, kind), "null" if kind == "json_schema" else "x")


@pytest.mark.timeout(300)
def test_hostile_grammars_cost_their_own_requests() -> None:
    """Each is refused, or its row ends with a stop, at its limit, or by its client's fault; a free row goes on."""
    model = tiny_model("llama")
    driver = LoopDriver(model, facts_of(model, eos_ids=(EOS_ID,)))
    ends: dict[str, int] = {}
    for start, grammar in enumerate(hostile_grammars()):
        if start % 8 == 0:
            driver.submit(f"free{start}", prompt_of(5), max_tokens=12, ignore_eos=True)
        hot = Sampling(temperature=1.0)
        driver.submit(str(start), prompt_of(4, start), max_tokens=12, grammar=grammar, sampling=hot, seed=start)
        if start % 8 == 7:
            driver.run_until_idle(limit=100_000)
            assert driver.tokens(f"free{start - 7}") == solo_tokens(model, prompt_of(5), 12)
    driver.run_until_idle(limit=100_000)
    for index in range(start + 1):
        rejected = driver.mailbox.rejected.get(SubmitId(str(index)))
        end = rejected.code if rejected is not None else driver.finish(str(index)).code or "well"
        ends[end] = ends.get(end, 0) + 1
    assert set(ends) == {ErrorCode.INVALID_REQUEST, "well"}
    assert min(ends.values()) > 20
