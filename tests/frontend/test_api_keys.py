"""Keys of requests: which are taken, and where they are looked for."""

import hmac

import pytest

from frontend import api_keys
from frontend.api_keys import ApiKeys, shown_keys


def test_no_keys_ask_for_none() -> None:
    """A server without keys lets everybody in, one with a key only who has it."""
    assert not ApiKeys().are_required
    keys = ApiKeys(["alpha", "beta"])
    assert keys.are_required
    assert [keys.accept(key) for key in ("alpha", "beta", "alph", "alphaa", "", "gamma")] == [True, True] + [False] * 4


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a match, and each as a digest of one length."""
    compared: list[int] = []
    original = hmac.compare_digest

    def recording(left: bytes, right: bytes) -> bool:
        compared.append(len(left))
        return original(left, right)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", recording)
    assert ApiKeys(["alpha", "beta", "gamma"]).accept("alpha")
    assert compared == [32, 32, 32]


def test_keys_are_found_in_both_headers() -> None:
    """OpenAI's and Anthropic's; another scheme is no key; a bearer's scheme has any case."""
    assert shown_keys({"authorization": "Bearer a"}) == ["a"]
    assert shown_keys({"authorization": "bearer  a ", "x-api-key": "b"}) == ["a", "b"]
    assert shown_keys({"authorization": "Basic a"}) == []
    assert shown_keys({"authorization": "Bearer", "x-api-key": " "}) == []
    assert shown_keys({}) == []


def test_keys_do_not_show() -> None:
    """Whatever prints the object, or its attributes, prints no key."""
    keys = ApiKeys(["very-secret"])
    assert "very-secret" not in f"{keys!r} {vars(keys)!r}"


def test_a_header_of_strange_bytes_is_no_key() -> None:
    """aiohttp hands bytes that are no UTF-8 on as surrogates."""
    assert not ApiKeys(["alpha"]).accept("alpha\udcff")
