"""What of a model can be batched: its caches' declared kinds, then a proof on two padded rows.

A model may keep plain caches and yet ignore masks or per-row positions, or take masks of another shape
(gemma2), so the declaration alone is not trusted.
"""

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine.cache.base import CacheKind
from engine.cache.layout import Layout
from engine.cache.masks import GROUPED_AXES, HEAD_AXES
from engine.cache.plan import DEFAULT_PLAN, CachePlan
from engine.cache.registry import declared_batching
from engine.cache.scheme import KvScheme
from engine.errors import EngineError
from engine.model.kv_layers import quantized_caches
from protocol.errors import ErrorCode
from protocol.messages import Batching

log = logging.getLogger(__name__)

# Relative L2 distance of a padded row's logits from its solo ones: float32 stays under 1e-4, bfloat16 under 3e-2;
# a row that sees padding or a neighbour's position is off by more than this.
MAX_RELATIVE_DISTANCE: Final = 0.15
# Lengths differ, so that two rows are padded; three rows are no model's number of grouped heads, over which a mask
# of the wrong shape might broadcast without an error.
PROBE_LENGTHS: Final = (7, 3, 5)
PROBE_STEPS: Final = 2
# What a forward raises on caches, masks or positions that it does not understand.
FORWARD_ERRORS: Final = (ValueError, TypeError, IndexError, AttributeError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Support:
    """What was found out about a model at start."""

    batching: Batching
    cache_plan: CachePlan = DEFAULT_PLAN


def probe_batching(model: nn.Module, max_rows: int, scheme: KvScheme | None = None) -> Support:
    """Whether rows may share steps, and how or why not. Also warms up a chunk, one row and two rows.

    Raises EngineError(BAD_SETTING) for a scheme that the model's caches or its attention cannot have.
    """
    alone = CachePlan() if scheme is None else _quantized_plan(model, scheme)
    if max_rows == 1:
        return _serial("--max-rows is 1", alone)
    declared = declared_batching(alone.prototypes(model))
    if alone.start_tokens and declared.mode == "batch":
        start = f"rows that reach --quantized-kv-start {alone.start_tokens} decode alone"
        declared = Batching(mode="batch", reason=f"{declared.reason}; {start}")
    if declared.mode == "serial":
        return Support(declared, alone)
    refusals: list[str] = []
    # Attention with its own softcap keeps grouped heads in an axis of their own.
    for mask_axes in (HEAD_AXES, GROUPED_AXES):
        plan = dataclasses.replace(alone, mask_axes=mask_axes)
        # Rows that share a step have float caches where quantizing starts later.
        refusal = _refusal(model, CachePlan(mask_axes) if alone.start_tokens else plan)
        if refusal is None:
            return Support(declared, plan)
        refusals.append(refusal)
    return _serial(refusals[0], alone)


def _serial(reason: str, plan: CachePlan) -> Support:
    return Support(Batching(mode="serial", reason=reason), plan)


def _quantized_plan(model: nn.Module, scheme: KvScheme) -> CachePlan:
    """Proved by one forward on quantized caches: sinks, latent and softcapped attention raise there."""
    plan = CachePlan(quantized=quantized_caches(model, scheme), start_tokens=scheme.start_tokens)
    try:
        mx.eval(model(mx.array([[5]]), cache=_filled(model, plan, [3, 4])))
    except FORWARD_ERRORS as error:
        name = getattr(getattr(model, "args", None), "model_type", None) or type(model).__name__
        raise EngineError(
            ErrorCode.BAD_SETTING,
            f"{scheme.flag}: {name} does not run on a quantized KV cache ({_line(error)}); leave it out",
        ) from error
    return plan


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _refusal(model: nn.Module, plan: CachePlan) -> str | None:
    """Why the model's rows cannot be padded under this plan; None when they can."""
    try:
        distance = _padded_distance(model, plan)
    except FORWARD_ERRORS as error:
        why = _line(error)
        log.warning("model.batch_probe_failed", extra={"mask_axes": plan.mask_axes, "why": why})
        return f"its forward fails on rows of different lengths: {why}"
    log.debug("model.batch_probe", extra={"mask_axes": plan.mask_axes, "relative_distance": distance})
    if distance > MAX_RELATIVE_DISTANCE:
        return f"its rows answer differently beside longer ones (off by {distance:.2f} of their size)"
    return None


def _padded_distance(model: nn.Module, plan: CachePlan) -> float:
    """The largest relative distance of any row's logits, together against alone, over a few steps."""
    prompts = [[token + 3 for token in range(length)] for length in PROBE_LENGTHS]
    kinds = plan.kinds(model)
    assert kinds is not None
    distances = [_distance_from_solo(model, plan, prompts, _stacked(model, plan, prompts))]
    if all(kind.prefills_together for kind in kinds):
        distances.append(_distance_from_solo(model, plan, prompts, _prefilled_together(model, kinds, prompts)))
    return max(distances)


class _Together(NamedTuple):
    caches: list[Any]
    layout: Layout


def _distance_from_solo(model: nn.Module, plan: CachePlan, prompts: list[list[int]], together: _Together) -> float:
    alone = [_filled(model, plan, prompt) for prompt in prompts]
    worst = 0.0
    for step in range(PROBE_STEPS):
        token = step + 5
        both = model(mx.array([[token]] * len(prompts)), cache=together.caches)[:, -1, :]
        together.layout.advance(1)
        each = [model(mx.array([[token]]), cache=caches)[:, -1, :] for caches in alone]
        worst = max(worst, _relative_distance(both, mx.concatenate(each)))
    return worst


def _stacked(model: nn.Module, plan: CachePlan, prompts: list[list[int]]) -> _Together:
    """Rows that were prefilled alone and then joined."""
    kinds = plan.kinds(model) or []
    joining = [_filled(model, plan, prompt) for prompt in prompts]
    layout = Layout.side_by_side([Layout([0], len(prompt)) for prompt in prompts])
    stacked = [kind.stack([caches[layer] for caches in joining], layout) for layer, kind in enumerate(kinds)]
    return _Together(stacked, layout)


def _prefilled_together(model: nn.Module, kinds: list[CacheKind], prompts: list[list[int]]) -> _Together:
    """Rows that were prefilled as one left-padded chunk."""
    width = max(len(prompt) for prompt in prompts)
    pads = [width - len(prompt) for prompt in prompts]
    layout = Layout(pads, 0)
    caches = [kind.blank(layout) for kind in kinds]
    padded = [[0] * pad + prompt for prompt, pad in zip(prompts, pads, strict=True)]
    mx.eval(model(mx.array(padded), cache=caches))
    layout.advance(width)
    return _Together(caches, layout)


def _filled(model: nn.Module, plan: CachePlan, prompt: list[int]) -> list[Any]:
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([prompt]), cache=caches))
    mx.eval([cache.state[:2] for cache in plan.convert(caches, max(len(prompt), plan.start_tokens))])
    return caches


def _relative_distance(got: mx.array, expected: mx.array) -> float:
    """Of the worst row. got, expected: [B, V]."""
    difference = mx.linalg.norm((got - expected).astype(mx.float32), axis=-1)
    size = mx.linalg.norm(expected.astype(mx.float32), axis=-1)
    distances: list[float] = (difference / size).tolist()  # pyright: ignore[reportAssignmentType]  # one axis
    return max(distances)
