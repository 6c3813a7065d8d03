"""Where the last `window` tokens of each row stand in a ring of columns: one for all layers of that window.

Owns the ring's arithmetic and its mask; the columns themselves are the kinds'.
"""

from collections.abc import Sequence

import mlx.core as mx


class Ring:
    """Columns 0:filled are written, the oldest at `head` once the ring is full; the next token goes to `head`.

    Row i holds min(window, its length) tokens, the newest ones; every older column is padding. Lengths are
    those before the next `advance`. The rule of which column is whose is mlx-lm's BatchRotatingKVCache's.
    """

    __slots__ = ("_lengths", "_masks", "_written", "window")

    def __init__(self, window: int, written: int, lengths: Sequence[int]) -> None:
        self.window = window
        self._written = written
        self._lengths = list(lengths)
        self._masks: dict[int | None, mx.array | None] = {}

    @property
    def filled(self) -> int:
        """Columns that hold a token of at least one row."""
        return min(self._written, self.window)

    @property
    def head(self) -> int:
        """Column of the next token."""
        return self._written % self.window

    @property
    def next_filled(self) -> int:
        """Columns that will be written when the next token is."""
        return min(self._written + 1, self.window)

    def live(self, index: int) -> int:
        """Columns that row `index` holds."""
        return min(self._lengths[index], self.window)

    def advance(self, tokens: int) -> None:
        """Counts tokens that a forward has written."""
        self._written += tokens
        self._lengths = [length + tokens for length in self._lengths]
        self._masks.clear()

    def kept(self, keep: list[int]) -> "Ring":
        """The ring of these rows alone; columns that none of them holds are cut, which puts it in order."""
        lengths = [self._lengths[index] for index in keep]
        most = min(self.window, max(lengths))
        written = self._written if most == self.filled else most
        return Ring(self.window, written, lengths)

    def mask(self, window_size: int | None) -> mx.array | None:
        """Attention mask of the next token: [B, 1, 1, next_filled] bool in ring order; None when all see all.

        window_size: how many tokens may be seen when that is less than the ring holds.
        """
        seen = min(window_size or self.window, self.window)
        if seen not in self._masks:
            self._masks[seen] = self._built_mask([min(length + 1, seen) for length in self._lengths])
        return self._masks[seen]

    def chunk_mask(self) -> mx.array | None:
        """As `mask`, where each row's token sees only those since the last multiple of the window."""
        if None not in self._masks:
            self._masks[None] = self._built_mask([length % self.window + 1 for length in self._lengths])
        return self._masks[None]

    def _built_mask(self, limits: list[int]) -> mx.array | None:
        """limits: how many of the newest columns each row sees, the next token's own among them."""
        columns = self.next_filled
        if min(limits) >= columns:
            return None
        ages = (self.head - mx.arange(columns)) % columns
        return (ages < mx.array(limits)[:, None])[:, None, None, :]
