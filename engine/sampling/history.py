"""The last tokens of rows whose sampling looks back, on the device: the newest of them nobody has read yet.

Owns the window and how it advances; what is done with it is penalties.py's and bans.py's.
"""

from dataclasses import dataclass
from typing import Final

import mlx.core as mx

from engine.row import Row

# In a window's column before the row's first token; no vocabulary has it.
NO_TOKEN: Final = 2**32 - 1
# Context of 0 tokens, which is all there are, as `tokens[-0:]` is in mlx-lm.
_ALL_TOKENS: Final = 2**31 - 1
# Columns that a window of all tokens has at least: as many as the longest bad word has ids.
_LEAST_WIDTH: Final = 64


def reach_of(context_tokens: int) -> int:
    """How many last tokens a context setting looks at."""
    return context_tokens or _ALL_TOKENS


@dataclass(slots=True, eq=False)
class History:
    """Windows of the rows `at` (their places in the batch), oldest token first.

    width: tokens kept; a window that keeps all grows by one each step. window: None until the first step.
    """

    rows: tuple[Row, ...]
    at: mx.array
    width: int
    _window: mx.array | None = None

    def advance(self, inputs: mx.array) -> mx.array:
        """[N, W] uint32: each row's last tokens up to that in inputs [B], which gives the logits to sample from."""
        newest = inputs if self.at.size == inputs.size else inputs[self.at]
        before = self._known(self.width - 1) if self._window is None else self._window
        window = mx.concatenate([before, newest[:, None]], axis=-1)
        self._window = window if self.width >= _ALL_TOKENS else window[:, 1:]
        return window

    def _known(self, width: int) -> mx.array:
        """What the host knows of each row, without the token that `inputs` brings."""
        known = [row.tokens_before_input(width) for row in self.rows]
        if self.width >= _ALL_TOKENS:
            width = max(_LEAST_WIDTH, *(len(tokens) for tokens in known))
        filled = [[NO_TOKEN] * (width - len(tokens)) + tokens for tokens in known]
        return mx.array(filled, dtype=mx.uint32).reshape(len(known), width)
