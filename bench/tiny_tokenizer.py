"""Owns a small byte-level BPE tokenizer with ChatML markers, for random models; learns nothing from any text."""

import itertools
import json
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END_OF_TEXT: Final = "<|endoftext|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
MARKERS: Final = (END_OF_TEXT, TURN_START, TURN_END)
_LETTERS: Final = "etaoinshrdlucmfwygpbvkxqjz"
_SPACE: Final = "Ġ"
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_tiny_tokenizer(folder: Path, vocabulary_size: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json: the markers, 256 bytes, then merged pairs of letters.

    Raises ValueError when the size is not between 259 and 961.
    """
    merges = list(itertools.islice(_pairs(), max(0, vocabulary_size - len(MARKERS) - 256)))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*MARKERS, *alphabet, *(first + second for first, second in merges)]
    if len(words) != vocabulary_size:
        raise ValueError(f"vocabulary_size {vocabulary_size}: a tiny tokenizer has 259 to 961 tokens")
    bpe = models.BPE(vocab={word: id_ for id_, word in enumerate(words)}, merges=merges)
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in MARKERS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": TURN_START,
        "eos_token": TURN_END,
        "pad_token": TURN_END,
        "unk_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


def _pairs() -> "itertools.chain[tuple[str, str]]":
    return itertools.chain(((_SPACE, letter) for letter in _LETTERS), itertools.product(_LETTERS, _LETTERS))
