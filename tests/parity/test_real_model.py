"""SmolLM2 itself: batched greedy tokens against mlx-lm's BatchGenerator at the same B."""

from pathlib import Path

import mlx.nn as nn
import platformdirs
import pytest
from tokenizers import Tokenizer

from engine.model.load import load_model
from engine.settings import Settings
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.parity.oracle import OracleRow, batch_tokens

QUESTIONS = [
    "What is the capital of France?",
    "Tell me a story about a dragon who lived on a hill by the sea and hated visitors.",
    "List three colours.",
    "Why is the sky blue? Explain it to a child who has never seen the sea.",
]


@pytest.fixture(scope="module")
def smollm2() -> nn.Module:
    """The default model, loaded as the engine loads it."""
    folder = _folder()
    return load_model(Settings(model=str(folder)), folder).model


def _folder() -> Path:
    folder = platformdirs.user_cache_path("convoy") / "models" / "SmolLM2-135M-Instruct"
    assert folder.is_dir(), f"no model in {folder}: run `engine-ctl pull smollm2`"
    return folder


@pytest.mark.real_model
@pytest.mark.parametrize("row_count", [2, 4])
def test_smollm2_equals_the_oracle(smollm2: nn.Module, row_count: int) -> None:
    """Rows of one batch, one of which leaves early and one of which joins late, give the oracle's tokens."""
    tokenizer = Tokenizer.from_file(str(_folder() / "tokenizer.json"))
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n").ids
        for question in QUESTIONS[:row_count]
    ]
    lengths = [16, 7, 12, 14][:row_count]
    rows = [OracleRow(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
    late = OracleRow(tokenizer.encode("The sea is").ids, 6, joins_after=6)
    expected = batch_tokens(smollm2, [*rows, late])
    driver = LoopDriver(smollm2, facts_of(smollm2))
    for index, row in enumerate(rows):
        driver.submit(str(index), row.prompt, max_tokens=row.max_tokens)
    driver.turn(6)
    driver.submit(str(row_count), late.prompt, max_tokens=late.max_tokens)
    driver.run_until_idle()
    assert [driver.tokens(str(index)) for index in range(row_count + 1)] == expected
    assert len({token for tokens in expected for token in tokens}) >= 20
