"""Sampling settings of one row, as they travel in a Submit; the engine says which it honours."""

from typing import Annotated

import msgspec
from msgspec import Meta

TokenId = Annotated[int, Meta(ge=0, lt=2**32)]
Probability = Annotated[float, Meta(ge=0.0, le=1.0)]
TokenCount = Annotated[int, Meta(ge=0)]


class TokenBias(msgspec.Struct, frozen=True, kw_only=True):
    """An amount added to one token's logit before sampling."""

    id: Annotated[int, Meta(ge=0)]
    bias: float


# A sequence of token ids that must not appear whole.
BadWord = Annotated[tuple[TokenId, ...], Meta(min_length=1, max_length=64)]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Each default is the neutral value: a feature at its default adds nothing to the graph.

    temperature: 0 is greedy. top_k: 0 is off. *_context: how many last tokens a penalty looks at, 0 for all.
    bad_words: none of them is ever completed. allowed_ids: no other id comes up; empty allows all.
    xtc_spared_ids: tokens that XTC never takes away, as mlx-lm spares ends and line breaks.
    """

    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 0.0
    top_k: TokenCount = 0
    top_p: Probability = 1.0
    min_p: Probability = 0.0
    xtc_probability: Probability = 0.0
    xtc_threshold: Annotated[float, Meta(ge=0.0, le=0.5)] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0.0)] = 1.0
    repetition_context: TokenCount = 20
    presence_penalty: float = 0.0
    presence_context: TokenCount = 20
    frequency_penalty: float = 0.0
    frequency_context: TokenCount = 20
    logit_bias: tuple[TokenBias, ...] = ()
    bad_words: Annotated[tuple[BadWord, ...], Meta(max_length=1_024)] = ()
    allowed_ids: Annotated[tuple[TokenId, ...], Meta(max_length=65_536)] = ()
    xtc_spared_ids: Annotated[tuple[TokenId, ...], Meta(max_length=64)] = ()
