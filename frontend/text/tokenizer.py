"""A model's tokenizer, from the files that the engine sent: text to ids, ids to text, special tokens, template source.

Imports no transformers: 90 MB of resident memory would go to classes that only read the same files.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec
import tokenizers

from frontend.text.token_limits import TokenLimits, token_limits
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages import BosRule
from protocol.template_files import DEFAULT_TEMPLATE, template_name

_SPECIAL_NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MAX_PARSER_NAME: Final = 64


class _AddedToken(msgspec.Struct, frozen=True):
    content: str
    special: bool = False


class _NamedTemplate(msgspec.Struct, frozen=True):
    name: str
    template: str


class Tokenizer:
    """Made by load_tokenizer. Safe to share between threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        bos: BosRule,
        special_tokens: Mapping[str, str],
        chat_templates: Mapping[str, str] = MappingProxyType({}),
        tool_parser_type: str | None = None,
    ) -> None:
        self._backend = backend
        self._bos = bos
        self.special_tokens: Mapping[str, str] = MappingProxyType(dict(special_tokens))
        self.chat_templates: Final = chat_templates
        # Which of mlx-lm's parsers reads the model's calls, if its files say so.
        self.tool_parser_type: Final = tool_parser_type
        added = backend.get_added_tokens_decoder()
        self._special_texts = {id_: token.content for id_, token in added.items() if token.special}
        self._added_ids = {token.content: id_ for id_, token in added.items()}
        self.special_ids = frozenset(self._special_texts)
        longest_first = sorted(self._special_texts.values(), key=len, reverse=True)
        self._special_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    @property
    def bos_token(self) -> str | None:
        """The token that begins a sequence, as text."""
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The token that ends a sequence, as text; the ids that end a row are the engine's to say."""
        return self.special_tokens.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        """The filler token, as text."""
        return self.special_tokens.get("pad_token")

    @property
    def vocabulary_size(self) -> int:
        """Tokens that have a text, added ones included; a model's output layer may be wider."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def decoder_state(self) -> Mapping[str, Any]:
        """How the tokenizer turns tokens into text, as tokenizer.json spells it; empty when it has no decoder."""
        decoder = self._backend.decoder
        return {} if decoder is None else msgspec.json.decode(decoder.__getstate__())

    def limits(self) -> TokenLimits | None:
        """How few tokens texts can become, where that is certain; takes a tenth of a second."""
        return token_limits(self._backend)

    def token_text(self, id_: int) -> str | None:
        """One token as the vocabulary spells it; None for an id that it does not have."""
        return self._backend.id_to_token(id_)

    def special_tokens_in(self, markers: Iterable[str]) -> tuple[str, ...]:
        """The special tokens that are one of the markers or a part of one, as text, longest first."""
        sought = tuple(markers)
        found = {text for text in self._special_texts.values() if any(text in marker for marker in sought)}
        return tuple(sorted(found, key=len, reverse=True))

    def unspelled_ids(self, markers: Iterable[str]) -> dict[str, int]:
        """The tokens in the markers that no text of a grammar spells, by text: llguidance takes tags for special."""
        sought = tuple(markers)
        return {
            text: id_
            for text, id_ in self._added_ids.items()
            if (id_ in self._special_texts or (text.startswith("<") and text.endswith(">")))
            and any(text in marker for marker in sought)
        }

    def count_special(self, text: str) -> int:
        """How many special tokens a rendered chat's text has."""
        return sum(1 for _ in self._special_pattern.finditer(text))

    def special_ids_but(self, shown: tuple[str, ...]) -> frozenset[int]:
        """The special tokens without these texts."""
        if not shown:
            return self.special_ids
        return frozenset(id_ for id_, text in self._special_texts.items() if text not in shown)

    def encode_text(self, text: str) -> list[int]:
        """Ids of raw text, with the special tokens that the tokenizer adds and at most one BOS."""
        ids = self._encode(text, has_special_tokens=True)
        bos_id = self._bos.id
        if bos_id is None:
            return ids
        leading = 0
        while leading < len(ids) and ids[leading] == bos_id:
            leading += 1
        match self._bos.add:
            case True:
                wanted = 1
            case None:
                wanted = min(leading, 1)
            case False:
                wanted = int(self.bos_token is not None and text.startswith(self.bos_token))
        return [bos_id] * wanted + ids[leading:]

    def encode_rendered(self, text: str) -> list[int]:
        """Ids of a rendered chat template: it has already written every special token it wants."""
        return self._encode(text, has_special_tokens=False)

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of ids; ids without a text add nothing."""
        return self._backend.decode(ids, skip_special_tokens=skip_special_tokens)

    def _encode(self, text: str, *, has_special_tokens: bool) -> list[int]:
        # `encode` holds the interpreter lock for its whole run (0.4 s for 130k tokens); a batch of one does not. The
        # fast one finds no places in the text, which nobody asks for, and spares a quarter of the time.
        return self._backend.encode_batch_fast([text], add_special_tokens=has_special_tokens)[0].ids


def load_tokenizer(folder: Path, bos: BosRule) -> Tokenizer:
    """Reads tokenizer.json, tokenizer_config.json and the template files. Raises ProtocolError(BAD_MODEL)."""
    try:
        backend = tokenizers.Tokenizer.from_buffer((folder / "tokenizer.json").read_bytes())
    except OSError as error:
        raise _bad(f"tokenizer.json cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise _bad(f"tokenizer.json is not a tokenizer: {error}") from error
    backend.no_truncation()
    backend.no_padding()
    config = _json_object(folder / "tokenizer_config.json")
    _add_missing_tokens(backend, config)
    special_tokens = _special_tokens(_json_object(folder / "special_tokens_map.json") | config)
    rule = _with_bos_id(bos, backend, special_tokens)
    parser = config.get("tool_parser_type")
    named = None if parser is None else str(parser)[:_MAX_PARSER_NAME]
    return Tokenizer(backend, rule, special_tokens, _chat_templates(folder, config), named)


def _bad(message: str) -> ProtocolError:
    return ProtocolError(ErrorCode.BAD_MODEL, message)


def _json_object(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is no such file."""
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise _bad(f"{path.name} cannot be read: {error}") from error


def _add_missing_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> None:
    """Tokens that only tokenizer_config.json names, in the order of their ids."""
    try:
        declared = msgspec.convert(config.get("added_tokens_decoder", {}), type=dict[int, _AddedToken], strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"the added_tokens_decoder of tokenizer_config.json cannot be read: {error}") from error
    for id_ in sorted(declared):
        entry = declared[id_]
        if backend.token_to_id(entry.content) is None:
            token = tokenizers.AddedToken(entry.content, normalized=False, special=entry.special)
            backend.add_tokens([token])  # pyright: ignore[reportUnknownMemberType]  # its stub names no element type


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: _text_of(config.get(name)) for name in _SPECIAL_NAMES}
    return {name: text for name, text in texts.items() if text is not None}


def _text_of(value: object) -> str | None:
    """A token is a string, or an object with its string under `content`."""
    if isinstance(value, dict):
        value = cast(dict[str, object], value).get("content")
    return value if isinstance(value, str) else None


def _with_bos_id(bos: BosRule, backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str]) -> BosRule:
    """`add_bos_token` of the config is not read: tokenizer.json alone says what is added, as in transformers 5."""
    text = special_tokens.get("bos_token")
    return BosRule(id=backend.token_to_id(text), add=bos.add) if bos.id is None and text is not None else bos


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """By name; one alone is the default. Files of their own win over the config, and both over a processor's file."""
    named = {template_name(path.name): path for path in sorted(folder.iterdir())}
    templates = {name: _template_text(path) for name, path in named.items() if name is not None}
    for found in (config.get("chat_template"), _json_object(folder / "chat_template.json").get("chat_template")):
        if not templates and found is not None:
            templates = {DEFAULT_TEMPLATE: found} if isinstance(found, str) else _named_templates(found)
    return templates


def _template_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(f"{path.name} cannot be read: {error}") from error


def _named_templates(found: object) -> dict[str, str]:
    """Some models keep several, by name."""
    try:
        templates: dict[str, str] | list[_NamedTemplate] = msgspec.convert(
            found, type=dict[str, str] | list[_NamedTemplate]
        )
    except msgspec.ValidationError as error:
        raise _bad(f"the chat_template of tokenizer_config.json cannot be read: {error}") from error
    return templates if isinstance(templates, dict) else {entry.name: entry.template for entry in templates}
