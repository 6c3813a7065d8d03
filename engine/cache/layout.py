"""Where each row's tokens stand in the left-padded columns of a batch: kept once, shared by all layers."""

from collections.abc import Sequence

import mlx.core as mx
from mlx_lm.models.base import create_causal_mask

from engine.cache.masks import Mask
from engine.cache.ring import Ring


class Layout:
    """Row i's tokens are columns pads[i]:width. Positions and masks hold still between two `advance` calls.

    A model may ask for the offset before and after it writes a layer's keys: both must be the same,
    or queries and keys get different positions.
    """

    __slots__ = ("_masks", "_offset", "_pads_array", "_rings", "pads", "width")

    def __init__(self, pads: list[int], width: int) -> None:
        self.pads = pads
        self.width = width
        self._rings: dict[int, Ring] = {}
        self._pads_array: mx.array | None = None
        self._offset: int | mx.array | None = None
        self._masks: dict[tuple[int, int | None], mx.array] = {}

    @property
    def is_padded(self) -> bool:
        """Whether any row has padding; without it the batch needs neither mask nor per-row offsets."""
        return any(self.pads)

    @property
    def offset(self) -> int | mx.array:
        """RoPE position of the next token: an int when all rows share it, else [B] int32."""
        if self._offset is None:
            is_padded = self.is_padded
            self._offset = mx.array([self.width - pad for pad in self.pads]) if is_padded else self.width
        return self._offset

    def advance(self, tokens: int) -> None:
        """Counts columns that a forward has written in every layer."""
        self.width += tokens
        self._offset = None
        self._masks.clear()
        for ring in self._rings.values():
            ring.advance(tokens)

    def ring(self, window: int) -> Ring:
        """The ring that all layers of this window share; asked for before the first `advance`, it is in order."""
        if window not in self._rings:
            lengths = [self.width - pad for pad in self.pads]
            self._rings[window] = Ring(window, min(self.width, window), lengths)
        return self._rings[window]

    def mask(self, tokens: int, return_array: bool, window_size: int | None) -> Mask:
        """Attention mask for the next `tokens` columns: [B, 1, tokens, width + tokens] bool, or none is needed."""
        if not self.is_padded and window_size is None:
            if tokens == 1:
                return None
            if not return_array:
                return "causal"
        asked = (tokens, window_size)
        if asked not in self._masks:
            self._masks[asked] = self._built_mask(tokens, window_size)
        return self._masks[asked]

    def _built_mask(self, tokens: int, window_size: int | None) -> mx.array:
        if self._pads_array is None:
            self._pads_array = mx.array(self.pads)
        if tokens == 1 and window_size is None:
            return mx.arange(self.width + 1) >= self._pads_array[:, None, None, None]
        return create_causal_mask(tokens, self.width, window_size, left_padding=self._pads_array)

    def columns(self, index: int, *, has_spare: bool) -> slice:
        """Those of row `index`; has_spare: with the free ones behind them."""
        return slice(self.pads[index], None if has_spare else self.width)

    @staticmethod
    def side_by_side(layouts: Sequence["Layout"]) -> "Layout":
        """The rows of all of these, in order, right-aligned at the widest."""
        width = max(layout.width for layout in layouts)
        pads = [pad + width - layout.width for layout in layouts for pad in layout.pads]
        return Layout(pads, width)

    def kept(self, keep: list[int]) -> "Layout":
        """The layout of these rows alone, the padding that all of them share trimmed away."""
        pads = [self.pads[index] for index in keep]
        trim = min(pads)
        kept = Layout([pad - trim for pad in pads], self.width - trim)
        kept._rings = {window: ring.kept(keep) for window, ring in self._rings.items()}
        return kept
