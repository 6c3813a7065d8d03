"""The prompt that a reply repeats before its own text, with its log-probabilities if asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

from frontend.dialects.base import ChatPrompt, ChoiceText, Generation, Prompt, TextPrompt, TokensPrompt
from frontend.entries import check_count, entry_of
from frontend.model_text import ModelText
from frontend.text.detokenize import Detokenizer
from frontend.text.spans import TokenSpans
from frontend.text.token_bytes import TokenBytes
from frontend.text.tokenizer import Tokenizer
from protocol.messages import TokenLogprobs


@dataclass(frozen=True, slots=True)
class PromptEcho:
    """One prompt's text; shared by its choices. starts: where each of its ids begins in it, only with entries."""

    text: str
    ids: Sequence[int] = ()
    starts: Sequence[int] = ()


def prompt_echoes(generation: Generation, prompts: Sequence[list[int]], text: ModelText) -> list[PromptEcho]:
    """One for each prompt, or none at all; a long prompt takes a moment, as tokenising it does."""
    if not generation.has_echo:
        return []
    return [
        _echo(prompt, ids, text.tokenizer, generation) for prompt, ids in zip(generation.prompts, prompts, strict=True)
    ]


def _echo(prompt: Prompt, ids: list[int], tokenizer: Tokenizer, generation: Generation) -> PromptEcho:
    match prompt:
        case TextPrompt(text=raw):
            text, skips = raw, False
        case TokensPrompt():
            text, skips = tokenizer.decode(ids, generation.skip_special_tokens), generation.skip_special_tokens
        case ChatPrompt():
            raise AssertionError("a chat has no echo")
    if generation.logprobs is None:
        return PromptEcho(text)
    detokenizer = Detokenizer(tokenizer, tokenizer.special_ids if skips else frozenset())
    return PromptEcho(text, ids, _starts(ids, detokenizer, _unwritten(ids, text, tokenizer)))


def _unwritten(ids: list[int], text: str, tokenizer: Tokenizer) -> int:
    """How many special tokens the tokenizer put before a text that does not begin with them."""
    count = 0
    while count < len(ids) and ids[count] in tokenizer.special_ids:
        if text.startswith(tokenizer.token_text(ids[count]) or ""):
            break
        count += 1
    return count


def _starts(ids: list[int], detokenizer: Detokenizer, unwritten_tokens: int) -> tuple[int, ...]:
    spans = TokenSpans()
    for index, id_ in enumerate(ids):
        spans.add(0 if index < unwritten_tokens else len(detokenizer.feed([id_])))
    spans.finish(len(detokenizer.finish()))
    return spans.all_starts()


class EchoProgress:
    """How far one choice has repeated its prompt. Without entries the text comes at once."""

    def __init__(self, echo: PromptEcho, choice: int, token_bytes: TokenBytes) -> None:
        self._echo = echo
        self._choice = choice
        self._token_bytes = token_bytes
        self._told_tokens = 0
        self._told_characters = 0

    def told(self, logprobs: Sequence[TokenLogprobs | None]) -> ChoiceText:
        """The next tokens of the prompt, with the text up to where the token behind them begins."""
        echo, first = self._echo, self._told_tokens
        last = first + len(logprobs)
        if last > len(echo.ids):
            check_count(last, len(echo.ids))
        triples = zip(echo.ids[first:last], logprobs, echo.starts[first:last], strict=True)
        entries = tuple([entry_of(id_, told, start, self._token_bytes) for id_, told, start in triples])
        self._told_tokens = last
        text = self._text_until(None if last == len(echo.ids) else echo.starts[last])
        return ChoiceText(self._choice, text, entries, is_prompt=True)

    def rest(self) -> ChoiceText | None:
        """What is left when the choice's own text begins. Raises RequestError when tokens of the prompt are missing."""
        check_count(self._told_tokens, len(self._echo.ids))
        text = self._text_until(None)
        return ChoiceText(self._choice, text, is_prompt=True) if text else None

    def _text_until(self, end: int | None) -> str:
        start, self._told_characters = self._told_characters, len(self._echo.text) if end is None else end
        return self._echo.text[start : self._told_characters]
