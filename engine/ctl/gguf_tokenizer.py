"""GGUF metadata to tokenizer.json and tokenizer_config.json.

Owns the mapping of token types, and byte-level BPE with its pre-tokenizer names; refuses what it cannot map exactly.
"""

from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from engine.ctl.failure import CommandError
from engine.ctl.gguf_metadata import Metadata
from engine.ctl.gguf_sentencepiece import sentencepiece_tokenizer
from engine.ctl.gguf_token_types import TokenType, token_types


def write_tokenizer(metadata: Metadata, folder: Path) -> None:
    """Writes both tokenizer files into `folder`. Raises CommandError on a tokenizer it cannot map."""
    tokens = metadata.get_list("tokenizer.ggml.tokens", str)
    build_tokenizer(metadata, tokens).save(str(folder / "tokenizer.json"))
    config = tokenizer_config(metadata, tokens)
    (folder / "tokenizer_config.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))


def build_tokenizer(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    """The tokenizer itself; token `i` of `tokens` gets id `i`."""
    if len(set(tokens)) != len(tokens):
        raise CommandError("the GGUF file's vocabulary has the same token twice")
    kind = metadata.get("tokenizer.ggml.model", str)
    match kind:
        case "gpt2":
            return _byte_level_tokenizer(metadata, tokens)
        case "llama":
            return sentencepiece_tokenizer(metadata, tokens)
        case _:
            raise CommandError(
                f"the GGUF file's tokenizer is {kind!r}; only byte-level BPE ('gpt2') and SentencePiece ('llama') are"
                " converted"
            )


def _byte_level_tokenizer(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    merges = [_pair(merge) for merge in metadata.get_list("tokenizer.ggml.merges", str)]
    vocabulary = {token: id_ for id_, token in enumerate(tokens)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(metadata.get("tokenizer.ggml.pre", str))  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]  # a property to its stub
    for token, type_ in zip(tokens, token_types(metadata, tokens), strict=True):
        if type_ in (TokenType.CONTROL, TokenType.USER_DEFINED):
            tokenizer.add_tokens([AddedToken(token, special=type_ == TokenType.CONTROL, normalized=False)])
    return tokenizer


def tokenizer_config(metadata: Metadata, tokens: list[str]) -> dict[str, Any]:
    """What transformers' loaders read beside tokenizer.json."""
    names = {
        "bos_token": "tokenizer.ggml.bos_token_id",
        "eos_token": "tokenizer.ggml.eos_token_id",
        "unk_token": "tokenizer.ggml.unknown_token_id",
        "pad_token": "tokenizer.ggml.padding_token_id",
    }
    config: dict[str, Any] = {
        # The plain class: a named one would rebuild the pre-tokenizer from its own family's rules.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata.get(f"{metadata.get('general.architecture', str)}.context_length", int),
        "add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", bool, default=False),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
    }
    for name, key in names.items():
        id_ = metadata.find(key, int)
        if id_ is not None:
            config[name] = tokens[id_]
    template = metadata.find("tokenizer.chat_template", str)
    if template is not None:
        config["chat_template"] = template
    return config


def _pair(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not space or not left or not right or " " in right:
        raise CommandError(f"the GGUF file has a merge that is no pair: {merge!r}")
    return left, right


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    match name:
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        case "gpt-2":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case _:
            raise CommandError(f"the GGUF file's pre-tokenizer {name!r} is not known here")
