"""What the handshake says of a model, from its files."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from mlx import nn
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from engine.errors import EngineError
from engine.model.facts import FALLBACK_CONTEXT_TOKENS, model_facts
from engine.model.load import LoadedModel
from engine.model.tokenizer_files import TokenizerFiles
from engine.settings import Settings
from protocol.codec import MAX_FRAME_BYTES
from protocol.errors import ErrorCode
from protocol.messages import Batching, GenerationDefaults, Limits, ModelFacts

WORDS = {"<unk>": 0, "<s>": 1, "</s>": 2, "<end>": 3, "a": 4, "b": 5}
BATCH = Batching(mode="batch", reason="plain")
CONFIG = {"model_type": "llama", "max_position_embeddings": 100, "vocab_size": 6, "eos_token_id": 2}


class PlainModel(nn.Module):
    """A stand-in of which only the embedding and mlx-lm's `args` are looked at."""

    def __init__(self, args: object = None) -> None:
        super().__init__()
        self.args = args
        self.embedding = nn.Embedding(11, 4)


def small_tokenizer(adds_bos: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
        )
    return tokenizer


def write_model(folder: Path, config: dict[str, Any], **files: dict[str, Any]) -> Path:
    """A model's JSON files. files: more of them, by name without the ending."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizer.json").exists():
        small_tokenizer(adds_bos=False).save(str(folder / "tokenizer.json"))
    for name, content in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def facts_of(folder: Path, module: nn.Module | None = None, batching: Batching = BATCH, **options: Any) -> ModelFacts:
    loaded = LoadedModel(
        model=module or PlainModel(), config={}, path=folder, dtype="float32", device="cpu", weights_bytes=1
    )
    settings = Settings(**{"model": str(folder)} | options)
    return model_facts(loaded, TokenizerFiles.read(folder), settings, batching, ("temperature",))


def context_of(folder: Path, config: dict[str, Any], **options: Any) -> int:
    return facts_of(write_model(folder, {"vocab_size": 6} | config), **options).context_length


# --- names and limits -------------------------------------------------------------------------


def test_a_folder_is_served_under_its_name(tmp_path: Path) -> None:
    """The path as given and mlx_lm.server's `default_model` work too."""
    folder = write_model(tmp_path / "Small-1B", CONFIG)
    facts = facts_of(folder)
    assert facts.id == "Small-1B"
    assert facts.aliases == (str(folder), "default_model")
    assert facts.path == str(folder)


def test_an_id_is_served_under_itself(tmp_path: Path) -> None:
    """A Hugging Face id is not repeated among its aliases."""
    facts = facts_of(write_model(tmp_path / "snapshot", CONFIG), model="org/name")
    assert (facts.id, facts.aliases) == ("org/name", ("default_model",))


def test_chosen_names_come_first(tmp_path: Path) -> None:
    """--model-id replaces the id; each --served-model-name is an alias, once."""
    folder = write_model(tmp_path / "m", CONFIG)
    facts = facts_of(folder, model_id="mine", served_model_name=("x", "*", "x", "mine"))
    assert (facts.id, facts.aliases) == ("mine", ("x", "*", str(folder), "default_model"))


def test_limits_are_the_settings(tmp_path: Path) -> None:
    """A model that is served serially has one row at a time, whatever was asked."""
    folder = write_model(tmp_path / "m", CONFIG)
    serial = Batching(mode="serial", reason="why")
    assert facts_of(folder, max_rows=7, max_waiting=9).limits == Limits(
        max_rows=7, max_waiting=9, max_frame_bytes=MAX_FRAME_BYTES
    )
    assert facts_of(folder, batching=serial, max_rows=7).limits.max_rows == 1


def test_what_was_learned_elsewhere_is_passed_on(tmp_path: Path) -> None:
    """Device, dtype, batching and the sampler's fields."""
    facts = facts_of(write_model(tmp_path / "m", CONFIG))
    assert (facts.device, facts.dtype, facts.batching, facts.sampling) == ("cpu", "float32", BATCH, ("temperature",))


def test_a_model_is_as_old_as_its_files(tmp_path: Path) -> None:
    """The same after every restart."""
    folder = write_model(tmp_path / "m", CONFIG)
    os.utime(folder / "config.json", (1_735_689_600, 1_735_689_600.75))
    assert facts_of(folder).created == 1_735_689_600
    assert facts_of(folder).created == 1_735_689_600


# --- context and vocabulary -------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"max_position_embeddings": 100},
        {"n_positions": 100},
        {"max_seq_len": 100},
        {"max_sequence_length": 100},
        {"text_config": {"max_position_embeddings": 100}},
        {"max_position_embeddings": None, "text_config": {"max_position_embeddings": 100}},
        {"max_position_embeddings": 100, "rope_scaling": None},
        {"max_position_embeddings": 100, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {
            "max_position_embeddings": 100,
            "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 50},
        },
        {
            "max_position_embeddings": 25,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 25},
        },
        {
            "max_position_embeddings": 100,
            "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 25},
        },
    ],
)
def test_the_context_is_the_models(config: dict[str, Any], tmp_path: Path) -> None:
    """Under any of its names, nested or not; YaRN's factor counts once, other scalings are included already."""
    assert context_of(tmp_path, config) == 100


def test_the_context_may_be_lowered_and_not_raised(tmp_path: Path) -> None:
    """Over the model's own length there is nothing but noise."""
    assert context_of(tmp_path, CONFIG, context_length=60) == 60
    assert context_of(tmp_path, CONFIG, context_length=100) == 100
    with pytest.raises(EngineError, match=r"101.*100") as caught:
        context_of(tmp_path, CONFIG, context_length=101)
    assert caught.value.code == ErrorCode.BAD_SETTING


def test_mlx_lms_own_default_counts(tmp_path: Path) -> None:
    """When config.json leaves the length to the model's code."""
    args = type("Args", (), {"max_position_embeddings": 77})()
    facts = facts_of(write_model(tmp_path, {"vocab_size": 6}), module=PlainModel(args))
    assert facts.context_length == 77


def test_the_tokenizers_length_counts_last(tmp_path: Path) -> None:
    """And not when it means "no limit"."""
    folder = write_model(tmp_path, {"vocab_size": 6}, tokenizer_config={"model_max_length": 55})
    assert facts_of(folder).context_length == 55
    write_model(tmp_path, {"vocab_size": 6}, tokenizer_config={"model_max_length": 10**30})
    assert facts_of(folder).context_length == FALLBACK_CONTEXT_TOKENS


def test_an_unknown_context_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fallback is a warning, and the user's own number then stands."""
    with caplog.at_level(logging.WARNING):
        assert context_of(tmp_path, {}) == FALLBACK_CONTEXT_TOKENS
        assert context_of(tmp_path, {}, context_length=50_000) == 50_000
    assert [record.message for record in caplog.records if "context" in record.message] == [
        "model.context_unknown",
        "model.context_unknown",
    ]


def test_the_vocabulary_is_the_configs_or_the_embeddings(tmp_path: Path) -> None:
    """Ids up to it may be sent; the tokenizer may have fewer."""
    assert facts_of(write_model(tmp_path, {"vocab_size": 9})).vocabulary_size == 9
    assert facts_of(write_model(tmp_path, {"text_config": {"vocab_size": 8}})).vocabulary_size == 8
    assert facts_of(write_model(tmp_path, {})).vocabulary_size == 11


# --- EOS, BOS, defaults -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "expected"),
    [
        ({"eos_token_id": 2}, {}, {}, (2,)),
        ({"eos_token_id": [3, 2]}, {}, {}, (2, 3)),
        ({"eos_token_id": None}, {"eos_token_id": 3}, {}, (3,)),
        ({"eos_token_id": 2}, {"eos_token_id": [3]}, {}, (2, 3)),
        ({"text_config": {"eos_token_id": 3}}, {}, {}, (3,)),
        ({}, {}, {"eos_token": "</s>"}, (2,)),
        ({}, {}, {"eos_token": {"content": "</s>", "special": True}}, (2,)),
        ({"eos_token_id": 3}, {}, {"eos_token": "</s>"}, (2, 3)),
        ({"eos_token_id": 3}, {}, {"eos_token": "<nowhere>"}, (3,)),
        ({"eos_token_id": 0}, {}, {}, (0,)),
        ({"eos_token_id": False}, {}, {}, ()),
        ({"eos_token_id": -1}, {}, {}, ()),
    ],
)
def test_every_file_may_name_an_end(
    config: dict[str, Any],
    generation: dict[str, Any],
    tokenizer: dict[str, Any],
    expected: tuple[int, ...],
    tmp_path: Path,
) -> None:
    """The union of config.json, generation_config.json and tokenizer_config.json."""
    folder = write_model(tmp_path, {"vocab_size": 6} | config, generation_config=generation, tokenizer_config=tokenizer)
    assert facts_of(folder).eos_ids == expected


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("wanted", [None, True, False])
@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "LlamaTokenizerFast", "Qwen2Tokenizer", "GemmaTokenizer"])
def test_the_bos_rule_gives_transformers_ids(adds_bos: bool, wanted: bool | None, kind: str, tmp_path: Path) -> None:
    """tokenizer.json alone decides, as in AutoTokenizer: add_bos_token in tokenizer_config.json changes nothing."""
    tokenizer = small_tokenizer(adds_bos)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": kind}
    settings |= {} if wanted is None else {"add_bos_token": wanted}
    write_model(tmp_path, CONFIG, tokenizer_config=settings)
    bos = facts_of(tmp_path).bos
    oracle = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    assert (bos.id, bos.add) == (oracle.bos_token_id, None)
    assert tokenizer.encode("a").ids == oracle("a")["input_ids"]


def test_a_tokenizer_without_bos_has_none(tmp_path: Path) -> None:
    """As Qwen's: bos_token is null."""
    folder = write_model(tmp_path, CONFIG, tokenizer_config={"bos_token": None, "add_bos_token": False})
    assert facts_of(folder).bos.id is None


def test_a_bos_setting_without_effect_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No file's field is ignored silently."""
    folder = write_model(tmp_path, CONFIG, tokenizer_config={"bos_token": "<s>", "add_bos_token": True})
    with caplog.at_level(logging.INFO):
        facts_of(folder)
    assert "tokenizer.bos_by_file" in [record.message for record in caplog.records]


def defaults_of(folder: Path, generation: dict[str, Any]) -> GenerationDefaults:
    return facts_of(write_model(folder, CONFIG, generation_config=generation)).defaults


def test_defaults_are_generation_configs(tmp_path: Path) -> None:
    """What it does not say is None; what is not ours is left."""
    assert facts_of(write_model(tmp_path / "m", CONFIG)).defaults == GenerationDefaults()
    said = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1, "x": 1}
    assert defaults_of(tmp_path / "m", said) == GenerationDefaults(
        temperature=0.6, top_k=20, top_p=0.95, min_p=0.05, repetition_penalty=1.1
    )


def test_do_sample_false_is_greedy(tmp_path: Path) -> None:
    """Its temperature is not meant then."""
    assert defaults_of(tmp_path, {"temperature": 0.6, "do_sample": False}) == GenerationDefaults(temperature=0.0)
    assert defaults_of(tmp_path, {"temperature": 0.6, "do_sample": True}) == GenerationDefaults(temperature=0.6)


def test_a_default_out_of_range_is_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Else every request without the field would be refused."""
    with caplog.at_level(logging.WARNING):
        assert defaults_of(tmp_path, {"top_p": 7, "top_k": "many", "temperature": 1}) == GenerationDefaults(
            temperature=1.0
        )
    assert [record.message for record in caplog.records] == ["model.bad_default", "model.bad_default"]


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_broken_file_is_named(name: str, text: str, tmp_path: Path) -> None:
    """One line, before anything is served."""
    folder = write_model(tmp_path, CONFIG)
    (folder / name).write_text(text)
    with pytest.raises(EngineError, match=name) as caught:
        facts_of(folder)
    assert caught.value.code == ErrorCode.BAD_MODEL
