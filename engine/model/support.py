"""What of a model can be batched: its caches' declared kinds, then a proof on two padded rows.

A model may keep plain caches and yet ignore masks or per-row positions (gemma2 raises, others would
answer wrongly), so the declaration alone is not trusted.
"""

import logging
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from engine.cache.base import CacheKind
from engine.cache.layout import Layout
from engine.cache.registry import declared_batching, kinds_of
from protocol.messages import Batching

log = logging.getLogger(__name__)

# Relative L2 distance of a padded row's logits from its solo ones: float32 stays under 1e-4, bfloat16 under 3e-2;
# a row that sees padding or a neighbour's position is off by more than this.
MAX_RELATIVE_DISTANCE: Final = 0.15
# Lengths differ, so that the second row is padded.
PROBE_LENGTHS: Final = (7, 3)
PROBE_STEPS: Final = 2


def probe_batching(model: nn.Module, max_rows: int) -> Batching:
    """Whether rows may share steps, and why not. Also warms up a chunk, one row and two rows."""
    if max_rows == 1:
        return Batching(mode="serial", reason="--max-rows is 1")
    declared = declared_batching(make_prompt_cache(model))
    if declared.mode == "serial":
        return declared
    try:
        distance = _padded_distance(model)
    except (ValueError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        log.warning("model.batch_probe_failed", extra={"why": f"{type(error).__name__}: {error}"})
        return Batching(mode="serial", reason=f"its forward fails on two padded rows: {error}")
    log.info("model.batch_probe", extra={"relative_distance": distance})
    if distance > MAX_RELATIVE_DISTANCE:
        return Batching(mode="serial", reason=f"its padded rows differ from solo ones by {distance:.2f}")
    return declared


def _padded_distance(model: nn.Module) -> float:
    """The largest relative distance of any row's logits, together against alone, over a few steps."""
    prompts = [[token + 3 for token in range(length)] for length in PROBE_LENGTHS]
    kinds = kinds_of(make_prompt_cache(model))
    assert kinds is not None
    distances = [_distance_from_solo(model, prompts, _stacked(model, kinds, prompts))]
    if all(kind.prefills_together for kind in kinds):
        distances.append(_distance_from_solo(model, prompts, _prefilled_together(model, kinds, prompts)))
    return max(distances)


class _Together(NamedTuple):
    caches: list[Any]
    layout: Layout


def _distance_from_solo(model: nn.Module, prompts: list[list[int]], together: _Together) -> float:
    alone = [_filled(model, prompt) for prompt in prompts]
    worst = 0.0
    for step in range(PROBE_STEPS):
        token = step + 5
        both = model(mx.array([[token]] * len(prompts)), cache=together.caches)[:, -1, :]
        together.layout.advance(1)
        each = [model(mx.array([[token]]), cache=caches)[:, -1, :] for caches in alone]
        worst = max(worst, _relative_distance(both, mx.concatenate(each)))
    return worst


def _stacked(model: nn.Module, kinds: list[CacheKind], prompts: list[list[int]]) -> _Together:
    """Rows that were prefilled alone and then joined."""
    joining = [_filled(model, prompt) for prompt in prompts]
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


def _filled(model: nn.Module, prompt: list[int]) -> list[Any]:
    caches = make_prompt_cache(model)
    mx.eval(model(mx.array([prompt]), cache=caches))
    return caches


def _relative_distance(got: mx.array, expected: mx.array) -> float:
    """Of the worst row. got, expected: [B, V]."""
    difference = mx.linalg.norm((got - expected).astype(mx.float32), axis=-1)
    size = mx.linalg.norm(expected.astype(mx.float32), axis=-1)
    distances: list[float] = (difference / size).tolist()  # pyright: ignore[reportAssignmentType]  # one axis
    return max(distances)
