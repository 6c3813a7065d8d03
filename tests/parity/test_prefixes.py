"""Each kind of cache on a whole model: a row that begins with what another left says what it says without."""

import functools

import pytest

from engine.cache.scheme import KvScheme, LayerScheme
from engine.model.support import probe_batching
from tests.fakes.loop_driver import OFF, ROOMY, LoopDriver
from tests.fakes.models import prompt_of
from tests.parity.architectures import WINDOW, random_model
from tests.parity.kinds import ALL, QUANTIZED, WINDOWED, driver_of

CHUNK = 16
COUNT = 24
# Kinds of which every prefix is there with the whole.
CUT_ANYWHERE = ("plain", "latent", "quantized")
SNAPSHOT_ONLY = tuple(kind for kind in ALL if kind not in CUT_ANYWHERE)


def _driver(kind: str) -> LoopDriver:
    return driver_of(kind, chunk_tokens=CHUNK)


@functools.cache
def _without(kind: str, prompt: tuple[int, ...]) -> list[int]:
    """What the row says when it computes everything."""
    driver = driver_of(kind, chunk_tokens=CHUNK, prefixes=OFF)
    driver.submit("row", list(prompt), max_tokens=COUNT)
    driver.run_until_idle()
    assert driver.finish("row").usage.cached_tokens == 0
    return driver.tokens("row")


def _run(driver: LoopDriver, id_: str, prompt: list[int], **changes: object) -> int:
    """Runs a row to its end, checks its tokens, and returns how many of its prompt's were there already."""
    driver.submit(id_, prompt, max_tokens=COUNT, **changes)
    driver.run_until_idle()
    return driver.finish(id_).usage.cached_tokens


@pytest.mark.parametrize("kind", ALL)
def test_an_exact_hit_computes_one_token(kind: str) -> None:
    """E6: the same prompt again: all but its last token are there, for a second row and a third; the donor stays."""
    prompt = prompt_of(50)
    driver = _driver(kind)
    assert _run(driver, "first", prompt) == 0
    for id_ in ("second", "third"):
        before = driver.loop._roster.tally.prompt_tokens
        assert _run(driver, id_, prompt) == 49
        assert driver.loop._roster.tally.prompt_tokens - before == 1
        assert driver.tokens(id_) == driver.tokens("first") == _without(kind, tuple(prompt))
    assert driver.prefixes.status().exact == 2


@pytest.mark.parametrize("kind", ALL)
def test_a_row_goes_on_from_what_another_said(kind: str) -> None:
    """Prompt and reply of one row begin the next one's prompt, as in a conversation."""
    prompt = prompt_of(40)
    driver = _driver(kind)
    _run(driver, "first", prompt)
    longer = [*prompt, *driver.tokens("first"), *prompt_of(9, 5)]
    cached = _run(driver, "second", longer)
    # The reply's last token was never forwarded.
    assert 40 + COUNT - 1 <= cached <= 40 + COUNT
    assert driver.tokens("second") == _without(kind, tuple(longer))


@pytest.mark.parametrize("kind", ALL)
def test_a_reply_that_comes_back_otherwise_keeps_the_snapshot(kind: str) -> None:
    """E7: the next turn shares the prompt up to snapshot_at and no further: at least that much is there."""
    prompt, shared = prompt_of(45), 37
    driver = _driver(kind)
    _run(driver, "first", prompt, snapshot_at=(20, shared))
    other = [*prompt[:shared], *prompt_of(30, 7)]
    assert _run(driver, "second", other, snapshot_at=(20, shared, 60)) == shared
    assert driver.tokens("second") == _without(kind, tuple(other))
    third = [*other[:60], *prompt_of(12, 9)]
    assert _run(driver, "third", third) == 60
    assert driver.tokens("third") == _without(kind, tuple(third))
    fresh = [*prompt[:20], *prompt_of(30, 11)]
    assert _run(driver, "fresh", fresh) == 20
    assert driver.tokens("fresh") == _without(kind, tuple(fresh))


@pytest.mark.parametrize("kind", CUT_ANYWHERE)
def test_what_can_be_cut_gives_any_prefix(kind: str) -> None:
    """Without anybody having said where, also in the middle of a reply."""
    prompt = prompt_of(45)
    driver = _driver(kind)
    _run(driver, "first", prompt)
    for number, shared in enumerate((60, 33, 17)):
        other = [*[*prompt, *driver.tokens("first")][:shared], *prompt_of(20, 20 + number)]
        assert _run(driver, f"other{number}", other) == shared
        assert driver.tokens(f"other{number}") == _without(kind, tuple(other))


@pytest.mark.parametrize("kind", SNAPSHOT_ONLY)
def test_what_cannot_be_cut_gives_no_other_prefix(kind: str) -> None:
    """Past the window, or of a state: between two snapshots there is nothing, and the earlier one is taken."""
    prompt = prompt_of(60)
    driver = _driver(kind)
    _run(driver, "first", prompt, snapshot_at=(30,))
    # A chunked cache can be cut within its newest chunk, and a window nowhere once it is full.
    other = [*prompt[:52], *prompt_of(20, 8)]
    assert _run(driver, "second", other) == (52 if kind == "chunked" and 59 // WINDOW * WINDOW < 52 else 30)
    assert driver.tokens("second") == _without(kind, tuple(other))


@pytest.mark.parametrize("kind", ALL)
def test_hits_join_a_running_batch(kind: str) -> None:
    """C3: beside a running row two rows with hits of one donor, of different lengths, join; all say what they would."""
    prompt = prompt_of(40)
    driver = _driver(kind)
    _run(driver, "donor", prompt, snapshot_at=(30,))
    prompts = {"running": prompt_of(21, 3), "again": prompt, "other": [*prompt[:30], *prompt_of(3 * WINDOW, 4)]}
    for id_, ids in prompts.items():
        driver.submit(id_, ids, max_tokens=COUNT)
        driver.turn(3)
    driver.run_until_idle()
    assert [driver.finish(id_).usage.cached_tokens for id_ in prompts] == [0, 39, 30]
    for id_, ids in prompts.items():
        assert driver.tokens(id_) == _without(kind, tuple(ids))


@pytest.mark.parametrize("kind", ALL)
def test_what_a_batch_leaves_is_what_a_row_alone_leaves(kind: str) -> None:
    """Rows of different lengths that end one by one in a batch: each one's conversation goes on from it."""
    driver = _driver(kind)
    prompts = {f"row{length}": prompt_of(length, length) for length in (25, 40, 33)}
    for number, (id_, ids) in enumerate(prompts.items()):
        driver.submit(id_, ids, max_tokens=COUNT - 4 * number)
    driver.run_until_idle()
    for id_, ids in prompts.items():
        longer = [*ids, *driver.tokens(id_), 7, 8, 9]
        assert _run(driver, f"{id_} again", longer) >= len(ids) + len(driver.tokens(id_)) - 1
        assert driver.tokens(f"{id_} again") == _without(kind, tuple(longer))


@pytest.mark.parametrize("kind", WINDOWED)
def test_hits_go_on_past_the_wrap(kind: str) -> None:
    """C3: a prefix shorter than the window, taken twice, decoded past three wraps."""
    driver = _driver(kind)
    prompt = prompt_of(WINDOW - 2)
    driver.prefixes._least_tokens = 2
    assert _run(driver, "first", prompt) == 0
    longer = [*prompt[: WINDOW - 3], *prompt_of(3, 4)]
    # Less than a chunk of quantized columns was read otherwise than the row would read it.
    assert _run(driver, "second", longer) == (0 if kind in QUANTIZED else WINDOW - 3)
    assert driver.tokens("second") == _without(kind, tuple(longer))


@pytest.mark.parametrize("kind", ALL)
def test_rows_that_come_together_share_a_beginning(kind: str) -> None:
    """A fan-out: three rows whose prompts part at a snapshot: the first computes it, the others go on from there."""
    driver = _driver(kind)
    prompts = {str(index): [*prompt_of(40), *prompt_of(9, index + 3)] for index in range(3)}
    for id_, ids in prompts.items():
        driver.submit(id_, ids, max_tokens=COUNT, snapshot_at=(40,))
    driver.run_until_idle()
    assert [driver.finish(id_).usage.cached_tokens for id_ in prompts] == [0, 40, 40]
    for id_, ids in prompts.items():
        assert driver.tokens(id_) == _without(kind, tuple(ids))


def test_rows_that_quantize_late_share_nothing() -> None:
    """--quantized-kv-start: a row that reaches it decodes alone, and neither leaves nor takes anything."""
    model, start = random_model("llama"), 60
    scheme = KvScheme("--kv-bits", every=LayerScheme(8, 32), start_tokens=start)
    plan = probe_batching(model, 32, scheme).cache_plan

    def run(driver: LoopDriver, id_: str, prompt: list[int], count: int) -> int:
        driver.submit(id_, prompt, max_tokens=count)
        driver.run_until_idle()
        return driver.finish(id_).usage.cached_tokens

    kept, plain = (LoopDriver(model, cache_plan=plan, chunk_tokens=CHUNK, prefixes=limits) for limits in (ROOMY, OFF))
    cases = {
        "short": (prompt_of(30), 10, 0),
        "short again": ([*prompt_of(30), 5, 6], 10, 30),
        "long": (prompt_of(90, 1), 20, 0),
        "long again": ([*prompt_of(75, 1), *prompt_of(9, 2)], 20, 0),
        "a part of the long": ([*prompt_of(45, 1), 7], 5, 0),
        "over the start": ([*prompt_of(30), *prompt_of(50, 4)], 20, 0),
    }
    for id_, (prompt, count, cached_tokens) in cases.items():
        assert (id_, run(kept, id_, prompt, count)) == (id_, cached_tokens)
        run(plain, id_, prompt, count)
        assert kept.tokens(id_) == plain.tokens(id_)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_a_first_chunk_is_taken_whole_or_not_at_all(kind: str) -> None:
    """C5: it is read as floats, what follows as what they were quantized to: a row says what it says alone, exactly."""
    driver = _driver(kind)
    short, long = prompt_of(CHUNK - 3), prompt_of(3 * CHUNK)
    _run(driver, "short", short)
    # The short one's own chunk ended before this one's does.
    assert _run(driver, "long", long) == 0
    assert _run(driver, "part", [*long[: CHUNK - 1], *prompt_of(20, 4)], snapshot_at=(CHUNK - 1,)) == 0
    assert _run(driver, "again", long) == 3 * CHUNK - 1
    for id_, prompt in {"long": long, "again": long}.items():
        assert driver.tokens(id_) == _without(kind, tuple(prompt))
