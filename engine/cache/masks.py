"""The form in which attention layers take masks."""

from typing import Final, Literal

import mlx.core as mx

Mask = mx.array | Literal["causal"] | None

# Axes of a mask that broadcasts over scores [B, H, N, S], and over scores of grouped heads [B, G, H/G, N, S].
HEAD_AXES: Final = 4
GROUPED_AXES: Final = 5


def with_axes(mask: Mask, axes: int) -> Mask:
    """A mask array [B, 1, N, S] with so many axes; anything else as it is."""
    return mask[:, None] if isinstance(mask, mx.array) and axes == GROUPED_AXES else mask
