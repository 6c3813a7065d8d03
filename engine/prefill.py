"""Prefill: a row's chunks alone, or short rows as one padded chunk; the forward that gives a first token."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from engine.batch import Group
from engine.cache.base import CacheKind
from engine.cache.plan import CachePlan
from engine.cache.recurrent import release_chunk
from engine.decode import read
from engine.row import PROMPT_LOGITS_TOKENS, Row
from engine.sampling.logprobs import launch_prompt_logprobs
from engine.sampling.masks import GrammarMasks
from engine.sampling.sampler import plan_sampling, sample


def launch_chunk(model: nn.Module, row: Row, chunk_tokens: int) -> int:
    """Sets the device to forward at most chunk_tokens, stopping one token short of the end. Returns how many.

    Only the caches are evaluated: MLX is lazy, so the head is never computed for these tokens. Of a row that asked
    for its prompt's log-probabilities it is, in chunks of at most PROMPT_LOGITS_TOKENS.
    """
    assert row.caches is not None
    if row.wants_prompt_logprobs:
        chunk_tokens = min(chunk_tokens, PROMPT_LOGITS_TOKENS)
    stop = min(row.prefilled + chunk_tokens, len(row.to_prefill) - 1)
    tokens = row.to_prefill[row.prefilled : stop]
    if tokens:
        logits = model(mx.array(tokens, dtype=mx.uint32)[None], cache=row.caches)
        release_chunk(row.caches)
        mx.async_eval(_arrays(row.caches), launch_prompt_logprobs(logits[0], row))
        row.prefilled = stop
    return len(tokens)


def launch_together(model: nn.Module, kinds: list[CacheKind], rows: list[Row]) -> Group:
    """Sets the device to forward all of these rows' prompts but the last tokens, left-padded as one chunk."""
    group = Group.of_prompts(kinds, rows)
    pads = group.layout.pads
    padded = [[0] * pad + row.to_prefill[:-1] for row, pad in zip(rows, pads, strict=True)]
    model(mx.array(padded, dtype=mx.uint32), cache=group.caches)
    group.layout.advance(len(padded[0]))
    mx.async_eval(_arrays(group.caches))
    for row in rows:
        row.prefilled = len(row.to_prefill) - 1
    return group


def launch_known(model: nn.Module, group: Group, tokens: list[int]) -> None:
    """Sets the device to forward tokens of a decoding group's one row that need no sampling."""
    model(mx.array(tokens, dtype=mx.uint32)[None], cache=group.caches)
    group.layout.advance(len(tokens))
    mx.async_eval(_arrays(group.caches))


def launch_copy(cache: Any) -> None:
    """Sets the device to make a layer's cache that is to be kept; nobody waits for it."""
    mx.async_eval(_arrays([cache]))


def wait_for_chunk(caches: list[Any]) -> None:
    """Waits until the caches hold what was launched."""
    mx.eval(_arrays(caches))


def settle(groups: Sequence[Group]) -> None:
    """Computes the caches of groups that were put together anew, layer by layer: one layer exists twice at most."""
    layers = max((len(group.caches) for group in groups), default=0)
    for layer in range(layers):
        mx.eval(_arrays([group.caches[layer] for group in groups if group.caches]))


def quantize(plan: CachePlan, caches: list[Any], tokens: int) -> None:
    """Converts a row's caches that are due, layer by layer, so that the most that exists twice is one layer."""
    for cache in plan.convert(caches, tokens):
        mx.eval(_arrays([cache]))


def first_token(model: nn.Module, row: Row, masks: GrammarMasks) -> int:
    """Forwards the last prompt token and reads what it samples."""
    last = mx.array(row.to_prefill[-1:], dtype=mx.uint32)
    logits = model(last[None], cache=row.caches)[:, -1, :]
    if row.grammar is not None:
        logits = masks.laid_over(logits, masks.start([row], [None]).result())
    sampled = sample(logits, plan_sampling([row]), last)
    mx.async_eval(sampled.arrays)
    row.prefilled = len(row.to_prefill)
    return read(sampled.tokens)[0]


def forward_one(model: nn.Module) -> None:
    """Forwards one token that is nobody's, on empty caches, and waits for it: what fails here is no row's fault."""
    mx.eval(model(mx.array([[0]], dtype=mx.uint32), cache=make_prompt_cache(model)))


def _arrays(caches: list[Any]) -> list[mx.array]:
    flat = tree_flatten([cache.state for cache in caches])
    return [leaf for _, leaf in flat if isinstance(leaf, mx.array)]  # pyright: ignore[reportGeneralTypeIssues]
