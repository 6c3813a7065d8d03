"""The shortest prefix worth keeping: how large it is, and what is said where it has no room."""

import re
from typing import Any

import pytest
from mlx_lm.models.cache import KVCache

from engine.prefix.least import least_tokens, why_none_is_kept
from engine.prefix.store import StoreLimits
from tests.fakes.models import prompt_of
from tests.parity.architectures import random_model
from tests.parity.kinds import ALL, KINDS, driver_of, support_of

CHUNK = 16
LEAST = least_tokens(CHUNK)
BUDGET = 1 << 30


def _why(kind: str, kept_bytes: int | None) -> str:
    caches = support_of(kind).cache_plan.samples(random_model(KINDS[kind].model), LEAST)
    return why_none_is_kept(StoreLimits(BUDGET, None, kept_bytes), caches, LEAST)


def _entries(kind: str, kept_bytes: int) -> int:
    """Kept of the shortest prompt that leaves something, which ran alone."""
    driver = driver_of(kind, chunk_tokens=CHUNK, prefixes=StoreLimits(BUDGET, None, kept_bytes))
    driver.submit("row", prompt_of(LEAST + 1), max_tokens=2)
    driver.run_until_idle()
    return driver.prefixes.status().entries


@pytest.mark.parametrize("kind", ALL)
def test_the_least_room_is_exact(kind: str) -> None:
    """So many bytes hold the shortest prefix of a row that ran alone, one less holds nothing: the reason has them."""
    (least_bytes,) = [int(figure) for figure in re.findall(r"takes (\d+)", _why(kind, 1))]
    assert [bool(_why(kind, least_bytes - less)) for less in (0, 1)] == [False, True]
    assert _why(kind, None) == ""
    kept, none = (_entries(kind, least_bytes - less) for less in (0, 1))
    assert kept
    assert not none


def test_a_reason_says_what_to_change() -> None:
    """The flag, its value, and the shortest prefix."""
    why = _why("plain", 1_000)
    for part in ("--prompt-cache-bytes 1000", f"{LEAST} tokens", "raise it, or set it to 0"):
        assert part in why


@pytest.mark.parametrize(
    ("caches", "limits", "expected"),
    [
        ([object()], StoreLimits(BUDGET), "the model's layers keep caches of no known kind"),
        ([KVCache()], StoreLimits(BUDGET, 0), "--prompt-cache-size is 0"),
        ([KVCache()], StoreLimits(BUDGET, None, 0), "--prompt-cache-bytes is 0"),
    ],
)
def test_a_cache_that_is_off_has_its_reason(caches: list[Any], limits: StoreLimits, expected: str) -> None:
    """A model's, or the flag's that was given."""
    assert why_none_is_kept(limits, caches, LEAST) == expected
