"""bench.frontend_tokens: each mix is read as what its name says, and a run gives a figure."""

import pytest

from bench.frontend_tokens import mixes, tokens_per_cpu_s
from frontend.model_text import load_model_text
from protocol.messages import BosRule
from tests.fakes.tokenizer_folder import build_tokenizer_folder
from tests.frontend.parsers.golden_cases import told


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("plain", {"text"}),
        ("looking", {"text"}),
        ("reasoning", {"reasoning"}),
        ("calls as JSON", {"call", "arguments", "end"}),
        ("calls in tags", {"call", "arguments", "end"}),
    ],
)
def test_a_mix_is_what_it_is_called(name: str, kinds: set[str]) -> None:
    """Or the figure would be another's."""
    mix = mixes()[name]
    assert {kind for kind, _ in told(mix.form, [mix.text, mix.text])} == kinds


def test_a_run_gives_a_figure(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Over several streams, for every mix."""
    text = load_model_text(build_tokenizer_folder(tmp_path_factory.mktemp("tokenizer")), BosRule())
    figures = [tokens_per_cpu_s(text, mix, streams=2, tokens=20) for mix in mixes().values()]
    assert all(figure > 0 for figure in figures)
