"""The schema suite: at temperature 1 every reply is valid, or cut off at its limit in a valid prefix."""

import dataclasses
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import platformdirs
import pytest
from jsonschema import Draft202012Validator
from mlx_lm.utils import load_model

from bench.random_model import TINY_LLAMA, build_random_model
from engine.model.load import load_model as load_as_engine
from engine.sampling.grammar import GrammarCompiler, GrammarTokenizer, row_grammar
from engine.settings import Settings
from protocol.messages import Grammar
from protocol.sampling import Sampling
from tests.engine.sampling.schemas import SCHEMAS
from tests.fakes.grammars import EOS_ID, compiler
from tests.fakes.loop_driver import LoopDriver, facts_of
from tests.fakes.models import prompt_of

MAX_TOKENS = 400
LEAST_VALID = 0.95


@functools.cache
def four_layers() -> nn.Module:
    """A random model of four layers."""
    with tempfile.TemporaryDirectory() as folder:
        spec = dataclasses.replace(TINY_LLAMA, layers=4)
        model, _ = load_model(build_random_model(Path(folder) / "four", spec))
        mx.eval(model.parameters())
    return model


def grammar_of(schema: dict[str, Any]) -> Grammar:
    """As the frontend sends it."""
    return Grammar(kind="json_schema", text=json.dumps(schema))


def share_valid(driver: LoopDriver, grammars: GrammarCompiler) -> float:
    """Runs the suite in one batch; fails on a reply that is neither valid nor a valid prefix at its limit."""
    trie = grammars.tokenizer.trie
    assert trie is not None
    for index, (name, schema) in enumerate(SCHEMAS.items()):
        driver.submit(
            name,
            prompt_of(4 + index % 5, index),
            max_tokens=MAX_TOKENS,
            grammar=grammar_of(schema),
            sampling=Sampling(temperature=1.0),
            seed=index,
        )
    driver.run_until_idle(limit=10_000)
    assert driver.mailbox.rejected == {}
    valid = 0
    for name, schema in SCHEMAS.items():
        tokens = driver.tokens(name)
        text = trie.decode_bytes(tokens).decode(errors="replace")
        if driver.finish(name).reason == "length":
            row = row_grammar(grammars.start(grammar_of(schema)), tokens)
            assert row.fault is None, (name, text)
            continue
        assert driver.finish(name).reason == "stop", (name, driver.finish(name))
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))
        valid += 1
    return valid / len(SCHEMAS)


def test_the_suite_is_large_and_sound() -> None:
    """At least 60 schemas, each a schema by its own metaschema."""
    assert len(SCHEMAS) >= 60
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


def test_the_suite_is_valid_on_a_random_model() -> None:
    """A model that knows nothing of JSON writes valid replies of every schema, many rows at once."""
    model = four_layers()
    driver = LoopDriver(model, facts_of(model, eos_ids=(EOS_ID,)))
    assert share_valid(driver, compiler()) >= LEAST_VALID


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.real_model
def test_the_suite_is_valid_on_smollm2() -> None:
    """The same on a real model with its own tokenizer."""
    folder = platformdirs.user_cache_path("convoy") / "models" / "SmolLM2-135M-Instruct"
    model: Any = load_as_engine(Settings(model=str(folder)), folder).model
    eos_id = json.loads((folder / "config.json").read_text())["eos_token_id"]
    content = (folder / "tokenizer.json").read_bytes()
    grammars = GrammarCompiler(GrammarTokenizer.read(content, model.args.vocab_size, (eos_id,)))
    driver = LoopDriver(model, facts_of(model, eos_ids=(eos_id,)), grammars=grammars)
    assert share_valid(driver, grammars) >= LEAST_VALID
    grammars.close()
