"""Tokenizer: files to ids and back, special tokens, at most one BOS, the template's source."""

import json
from pathlib import Path

import pytest

from frontend.text.tokenizer import Tokenizer, load_tokenizer
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import BosRule
from tests.frontend.text.tokenizer_builds import byte_level_backend, metaspace_backend, write_folder

BOS_ID = 1
NAMED = {"rag": "r", "default": "d", "tool_use": "t"}
LLAMA_CONFIG: dict[str, object] = {"bos_token": "<s>", "eos_token": "</s>"}


def loaded(folder: Path, rule: BosRule) -> Tokenizer:
    """The metaspace tokenizer, whose file adds a BOS, under a rule."""
    return load_tokenizer(write_folder(folder, metaspace_backend(), LLAMA_CONFIG), rule)


def bare(folder: Path, rule: BosRule) -> Tokenizer:
    """The same without a post-processor: its file adds nothing."""
    backend = metaspace_backend()
    content = json.loads(backend.to_str()) | {"post_processor": None}
    return load_tokenizer(write_folder(folder, type(backend).from_str(json.dumps(content)), LLAMA_CONFIG), rule)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (BosRule(), 1),
        (BosRule(id=BOS_ID), 1),
        (BosRule(id=BOS_ID, add=True), 1),
        (BosRule(id=BOS_ID, add=False), 0),
    ],
)
def test_raw_text_gets_the_bos_of_the_rule(tmp_path: Path, rule: BosRule, expected: int) -> None:
    """None is as the file says, and the file adds one."""
    assert loaded(tmp_path, rule).encode_text("the fox").count(BOS_ID) == expected


@pytest.mark.parametrize(
    ("rule", "expected"), [(BosRule(), 0), (BosRule(id=BOS_ID, add=True), 1), (BosRule(id=BOS_ID, add=False), 0)]
)
def test_a_file_without_bos_gets_it_only_by_rule(tmp_path: Path, rule: BosRule, expected: int) -> None:
    """The engine may know of a BOS that the file does not add."""
    assert bare(tmp_path, rule).encode_text("the fox").count(BOS_ID) == expected


@pytest.mark.parametrize("add", [None, True, False])
def test_a_bos_that_the_text_brings_is_not_doubled(tmp_path: Path, add: bool | None) -> None:
    """A client that writes it out gets one."""
    ids = loaded(tmp_path, BosRule(id=BOS_ID, add=add)).encode_text("<s>the fox")
    assert (ids[0], ids.count(BOS_ID)) == (BOS_ID, 1)


def test_empty_text_is_a_bos_or_nothing(tmp_path: Path) -> None:
    """So an empty prompt can be told from one that has a token."""
    assert loaded(tmp_path / "with", BosRule()).encode_text("") == [BOS_ID]
    assert bare(tmp_path / "without", BosRule()).encode_text("") == []


def test_rendered_text_gets_no_special_token(tmp_path: Path) -> None:
    """The template has written its own, and those become ids."""
    tokenizer = loaded(tmp_path, BosRule(id=BOS_ID, add=True))
    assert tokenizer.encode_rendered("the fox").count(BOS_ID) == 0
    assert tokenizer.encode_rendered("<s>the fox")[0] == BOS_ID


def test_special_tokens_are_read_as_text_or_object(byte_level: Tokenizer) -> None:
    """tokenizer_config.json spells them both ways."""
    assert (byte_level.bos_token, byte_level.eos_token, byte_level.pad_token) == (
        "<|endoftext|>",
        "<|im_end|>",
        "<|im_end|>",
    )


def test_special_tokens_map_fills_what_the_config_lacks(tmp_path: Path) -> None:
    """The config wins where both speak."""
    special = json.dumps({"bos_token": "<s>", "eos_token": "<other>", "pad_token": {"content": "<unk>"}})
    folder = write_folder(tmp_path, metaspace_backend(), {"eos_token": "</s>"}, special_tokens_map_json=special)
    assert dict(load_tokenizer(folder, BosRule()).special_tokens) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<unk>",
    }


def test_tokens_that_only_the_config_names_are_added(tmp_path: Path) -> None:
    """They are one id each, special if the config says so."""
    backend = byte_level_backend()
    size = backend.get_vocab_size()
    declared = {
        str(size + 1): {"content": "<tool>", "special": False},
        str(size): {"content": "<think>", "special": True},
        "0": {"content": "<|endoftext|>", "special": True},
    }
    tokenizer = load_tokenizer(write_folder(tmp_path, backend, {"added_tokens_decoder": declared}), BosRule())
    assert tokenizer.encode_rendered("<think><tool>") == [size, size + 1]
    assert tokenizer.decode([size, size + 1], True) == "<tool>"
    assert tokenizer.vocabulary_size == size + 2


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    """They belong to training; a server must see the whole prompt and nothing more."""
    backend = byte_level_backend()
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    tokenizer = load_tokenizer(write_folder(tmp_path, backend, {}), BosRule())
    assert tokenizer.decode(tokenizer.encode_text("a long enough text"), False) == "a long enough text"
    assert len(tokenizer.encode_text("a")) == 1


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ({}, {}, {}),
        ({"chat_template": "config"}, {}, {"default": "config"}),
        ({"chat_template": "config"}, {"chat_template_jinja": "file"}, {"default": "file"}),
        ({"chat_template": "config"}, {"chat_template_json": '{"chat_template": "json"}'}, {"default": "config"}),
        ({}, {"chat_template_json": '{"chat_template": "json"}'}, {"default": "json"}),
        ({"chat_template": NAMED}, {}, NAMED),
        ({"chat_template": [{"name": name, "template": text} for name, text in NAMED.items()]}, {}, NAMED),
        ({"chat_template": NAMED}, {"chat_template_jinja": "file"}, {"default": "file"}),
        ({"chat_template": "config"}, {"chat_template.tool_use_jinja": "tools"}, {"tool_use": "tools"}),
        (
            {"chat_template": "config"},
            {"chat_template_jinja": "file", "chat_template.tool_use_jinja": "tools", "chat_template.x.y_jinja": "z"},
            {"default": "file", "tool_use": "tools", "x.y": "z"},
        ),
    ],
)
def test_the_template_is_found_where_models_keep_it(
    tmp_path: Path, config: dict[str, object], files: dict[str, str], expected: dict[str, str]
) -> None:
    """Files of their own win over the config, and both over a processor's file."""
    folder = write_folder(tmp_path, byte_level_backend(), config, **files)
    assert load_tokenizer(folder, BosRule()).chat_templates == expected


def test_a_folder_without_config_still_tokenises(tmp_path: Path) -> None:
    """Only tokenizer.json is needed."""
    write_folder(tmp_path, byte_level_backend(), {})
    (tmp_path / "tokenizer_config.json").unlink()
    tokenizer = load_tokenizer(tmp_path, BosRule())
    assert tokenizer.decode(tokenizer.encode_text("fox"), True) == "fox"


@pytest.mark.parametrize(
    ("name", "content"),
    [("tokenizer.json", None), ("tokenizer.json", "{}"), ("tokenizer.json", "{"), ("tokenizer_config.json", "[]")],
)
def test_a_missing_or_broken_file_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    """The error is BAD_MODEL and says which file."""
    write_folder(tmp_path, byte_level_backend(), {})
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ProtocolError, match=name) as caught:
        load_tokenizer(tmp_path, BosRule())
    assert caught.value.code is ErrorCode.BAD_MODEL


@pytest.mark.parametrize("template", [5, [{"name": "default"}], {"default": 1}])
def test_a_template_of_the_wrong_shape_is_the_models_fault(tmp_path: Path, template: object) -> None:
    """BAD_MODEL, not a failure at the first chat."""
    write_folder(tmp_path, byte_level_backend(), {"chat_template": template})
    with pytest.raises(ProtocolError, match="chat_template") as caught:
        load_tokenizer(tmp_path, BosRule())
    assert caught.value.code is ErrorCode.BAD_MODEL


def test_broken_added_tokens_are_the_models_fault(tmp_path: Path) -> None:
    """Named, instead of ids that would be wrong."""
    write_folder(tmp_path, byte_level_backend(), {"added_tokens_decoder": {"5": {"special": True}}})
    with pytest.raises(ProtocolError, match="added_tokens_decoder"):
        load_tokenizer(tmp_path, BosRule())
