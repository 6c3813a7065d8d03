"""Small tokenizers of both families, trained here: byte-level BPE (GPT-2's way) and metaspace with byte fallback."""

import json
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from frontend.text.tokenizer import Tokenizer, load_tokenizer
from protocol.messages import BosRule

SAMPLE = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, the fox runs on and on.",
    "Größe, naïve café, façade; 日本語のテキスト、漢字かな混じり文。",
    "def main(argument):\n    return argument + 1\n\n\tprint('END')",
    "STOP here. stop there. </s> or not. one two three four five six",
]
NO_RULE = BosRule()


def byte_level_backend() -> tokenizers.Tokenizer:
    """Every byte is a token, so any text can be encoded; 340 tokens, 3 of them special."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SAMPLE, trainer)
    backend.add_tokens([tokenizers.AddedToken("<plain added>", normalized=False, special=False)])
    return backend


def metaspace_backend() -> tokenizers.Tokenizer:
    """As sentencepiece's llama tokenizer: ▁ for spaces, unknown characters as byte tokens, a BOS in front."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<unk>", "<s>", "</s>", *byte_tokens],
        limit_alphabet=50,
        show_progress=False,
    )
    trained.train_from_iterator(SAMPLE, trainer)
    # Trained as special tokens to get the low ids, but in a real file the byte tokens are plain vocabulary.
    content = json.loads(trained.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 3]
    content["model"].update(byte_fallback=True, fuse_unk=True)
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return backend


def write_folder(folder: Path, backend: tokenizers.Tokenizer, config: dict[str, object], **files: str) -> Path:
    """A tokenizer folder as the engine sends it. files: more of them, `chat_template_jinja` for chat_template.jinja."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(backend.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(content, encoding="utf-8")
    return folder


def byte_level_tokenizer(folder: Path) -> Tokenizer:
    """Loaded from files."""
    config: dict[str, object] = {
        "bos_token": "<|endoftext|>",
        "eos_token": {"content": "<|im_end|>", "special": True},
        "pad_token": "<|im_end|>",
    }
    return load_tokenizer(write_folder(folder, byte_level_backend(), config), NO_RULE)


def metaspace_tokenizer(folder: Path) -> Tokenizer:
    """Loaded from files."""
    config: dict[str, object] = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return load_tokenizer(write_folder(folder, metaspace_backend(), config), NO_RULE)
