"""From what a client asked to the Sampling of its rows: defaults in their order, words to ids, ids checked."""

from collections.abc import Iterable
from typing import Final, TypeVar

from frontend.dialects.base import AskedSampling, Generation
from frontend.dialects.values import shown
from frontend.errors import RequestError
from frontend.text.tokenizer import Tokenizer
from protocol.errors import ErrorCode
from protocol.messages import GenerationDefaults, ModelFacts
from protocol.sampling import Sampling

_MAX_WORD_TOKENS: Final = 64
_MAX_SPARED_IDS: Final = 64
_NEUTRAL: Final = Sampling()
_Number = TypeVar("_Number", int, float)


def resolve_sampling(
    asked: AskedSampling, flags: GenerationDefaults, facts: ModelFacts, tokenizer: Tokenizer
) -> Sampling:
    """The request's word counts first, then a flag that was given, then the model's generation_config.json.

    Raises RequestError for ids outside the vocabulary and for bad words that are too many tokens.
    """
    model = facts.defaults
    top_k = _first(asked.top_k, flags.top_k, model.top_k, _NEUTRAL.top_k)
    _check_ids("logit_bias", (bias.id for bias in asked.logit_bias), facts)
    _check_ids("allowed_token_ids", asked.allowed_ids, facts)
    has_xtc = asked.xtc_probability > 0
    return Sampling(
        temperature=_first(asked.temperature, flags.temperature, model.temperature, _NEUTRAL.temperature),
        # As many as there are is no limit.
        top_k=top_k if top_k < facts.vocabulary_size else 0,
        top_p=_first(asked.top_p, flags.top_p, model.top_p, _NEUTRAL.top_p),
        min_p=_first(asked.min_p, flags.min_p, model.min_p, _NEUTRAL.min_p),
        repetition_penalty=_first(
            asked.repetition_penalty, flags.repetition_penalty, model.repetition_penalty, _NEUTRAL.repetition_penalty
        ),
        repetition_context=asked.repetition_context,
        presence_penalty=asked.presence_penalty,
        presence_context=asked.presence_context,
        frequency_penalty=asked.frequency_penalty,
        frequency_context=asked.frequency_context,
        xtc_probability=asked.xtc_probability,
        xtc_threshold=asked.xtc_threshold if has_xtc else _NEUTRAL.xtc_threshold,
        xtc_spared_ids=_spared_ids(facts, tokenizer) if has_xtc else (),
        logit_bias=asked.logit_bias,
        bad_words=_word_ids(asked.bad_words, tokenizer),
        allowed_ids=asked.allowed_ids,
    )


def check_tokens_left(generation: Generation, sampling: Sampling, facts: ModelFacts) -> None:
    """Raises RequestError for stop ids outside the vocabulary, and for settings that exclude every first token.

    What only a bad word of several tokens, or a grammar, excludes is found by the engine when it comes to it.
    """
    _check_ids("stop_token_ids", generation.stop_ids, facts)
    allowed = set(sampling.allowed_ids)
    excluded = {word[0] for word in sampling.bad_words if len(word) == 1}
    names = [*(["allowed_token_ids"] if allowed else []), *(["bad_words"] if excluded else [])]
    left = _left(allowed, excluded, facts)
    # A grammar wins over min_tokens: there an end may come at once.
    if left and generation.min_tokens and generation.constraint is None:
        excluded |= {*generation.stop_ids, *(() if generation.ignore_eos else facts.eos_ids)}
        names.append("min_tokens")
        left = _left(allowed, excluded, facts)
    if left <= 0:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"{' and '.join(f'`{name}`' for name in names)} leave no token that may come: allow more",
            names[0],
        )


def _left(allowed: set[int], excluded: set[int], facts: ModelFacts) -> int:
    """How many tokens of the vocabulary are left; allowed empty: all of it."""
    return len(allowed - excluded) if allowed else facts.vocabulary_size - len(excluded)


def _first(*values: _Number | None) -> _Number:
    """The first that was said; the last always is."""
    return next(value for value in values if value is not None)


def _check_ids(name: str, ids: Iterable[int], facts: ModelFacts) -> None:
    unknown = next((id_ for id_ in ids if id_ >= facts.vocabulary_size), None)
    if unknown is not None:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"`{name}`: token id {unknown} is outside the vocabulary of {facts.vocabulary_size} tokens",
            name,
        )


def _spared_ids(facts: ModelFacts, tokenizer: Tokenizer) -> tuple[int, ...]:
    """What mlx_lm.server's XTC never takes away: the ends and the line break."""
    return tuple(dict.fromkeys([*facts.eos_ids, *tokenizer.encode_rendered("\n")]))[:_MAX_SPARED_IDS]


def _word_ids(words: Iterable[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it is tokenised at the beginning of a text and, where those are other tokens, behind a space.

    After vLLM (SamplingParams.update_from_tokenizer), which leaves the second out when it is fewer tokens.
    """
    found: list[tuple[int, ...]] = []
    for word in words:
        first, spaced = (tuple(tokenizer.encode_rendered(space + word.lstrip())) for space in ("", " "))
        if len(first) > _MAX_WORD_TOKENS:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"`bad_words`: {shown(word)} is {len(first)} tokens, at most {_MAX_WORD_TOKENS} are taken",
                "bad_words",
            )
        found += [ids for ids in (first,) if ids]
        if first and spaced[0] != first[0] and spaced[1:] != first:
            found.append(spaced)
    return tuple(dict.fromkeys(found))
