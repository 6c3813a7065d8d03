"""The draft model at start: loaded beside the served one, or refused with the reason."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.parity.architectures import random_model  # isort: skip  # before MLX

from bench.random_model import RandomModelSpec, build_random_model
from engine.errors import EngineError
from engine.model.draft import load_draft
from engine.model.load import LoadedModel, load_model
from engine.settings import Settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_random_model(tmp_path_factory.mktemp("models") / "draft", RandomModelSpec())


@pytest.fixture(scope="module")
def served(folder: Path) -> LoadedModel:
    return load_model(Settings(model=str(folder)), folder)


def settings(folder: Path, **changes: object) -> Settings:
    return Settings(model=str(folder), draft_model=str(folder), **changes)  # type: ignore[arg-type]


def test_without_the_flag_there_is_none(folder: Path, served: LoadedModel) -> None:
    """Nothing is loaded."""
    assert load_draft(Settings(model=str(folder)), served) is None


def test_it_is_loaded_with_its_vocabulary(folder: Path, served: LoadedModel) -> None:
    """As many tokens as it has logits."""
    draft = load_draft(settings(folder), served)
    assert draft is not None
    assert (draft.id, draft.vocabulary_size) == (str(folder), served.config["vocab_size"])


def test_only_shared_tokens_are_guessed(folder: Path, served: LoadedModel) -> None:
    """A draft that knows more tokens must not say them: the served model could not read them."""
    smaller = replace(served, model=random_model("llama"))
    draft = load_draft(settings(folder), smaller)
    assert draft is not None
    assert draft.vocabulary_size == min(256, served.config["vocab_size"])


def test_state_that_cannot_be_taken_back_is_refused(folder: Path, served: LoadedModel) -> None:
    """A recurrent model is named, with the flag."""
    recurrent = replace(served, model=random_model("mamba2"))
    with pytest.raises(EngineError, match=r"--draft-model .*the served model keeps state .*\(mamba2\)"):
        load_draft(settings(folder), recurrent)


def test_a_late_quantized_start_is_refused(folder: Path, served: LoadedModel) -> None:
    """Both flags are named."""
    with pytest.raises(EngineError, match=r"--draft-model .* --quantized-kv-start 5"):
        load_draft(settings(folder, kv_bits=8, quantized_kv_start=5), served)


def test_a_missing_draft_is_a_bad_model(folder: Path, served: LoadedModel) -> None:
    """One line with its name."""
    with pytest.raises(EngineError, match="/nowhere"):
        load_draft(Settings(model=str(folder), draft_model="/nowhere"), served)


def test_another_tokenizer_is_told(
    folder: Path, served: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs speed, not correctness."""
    with caplog.at_level(logging.WARNING):
        load_draft(settings(folder), replace(served, path=tmp_path))
    assert "draft.other_tokenizer" in [record.message for record in caplog.records]
