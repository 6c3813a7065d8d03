"""Signatures: what is hidden in one comes back, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.dialects.anthropic_signature import signature_of, signed_reasoning


@given(st.text())
def test_hidden_text_comes_back(text: str) -> None:
    """Whatever it is."""
    assert signed_reasoning(signature_of(text)) == text


@pytest.mark.parametrize("signature", ["", "convoy", "convoy:", "convoy:/w==", "convoy:a", "convoy:ü", "EqQBCgIYAhIM"])
def test_other_signatures_hide_nothing(signature: str) -> None:
    """Those of another server, and broken ones."""
    assert signed_reasoning(signature) == ""


def test_a_signature_is_never_empty() -> None:
    """Clients drop a block without one."""
    assert signature_of() == "convoy"
