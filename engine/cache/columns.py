"""Buffers of columns, [B, H, capacity, D]: how they are filled from rows' parts, grown and cut.

Knows neither kinds nor masks.
"""

from collections.abc import Sequence
from typing import Final

import mlx.core as mx

# Buffers grow by this many columns, as mlx-lm's own do.
STEP_TOKENS: Final = 256


def capacity_for(columns: int) -> int:
    """Whole steps that hold so many columns."""
    return -(-columns // STEP_TOKENS) * STEP_TOKENS


def stacked(parts: Sequence[Sequence[mx.array]], width: int, capacity: int) -> mx.array:
    """[rows, H, capacity, D] of zeros, each part's columns ending at `width`.

    A part is its columns in order, in one or more pieces [b, H, columns, D]. Masked padding must not hold NaN,
    hence the zeros.
    """
    first = parts[0][0]
    rows = sum(pieces[0].shape[0] for pieces in parts)
    buffer = mx.zeros((rows, first.shape[1], capacity, first.shape[3]), first.dtype)
    row = 0
    for pieces in parts:
        next_row = row + pieces[0].shape[0]
        column = width - sum(piece.shape[2] for piece in pieces)
        for piece in pieces:
            next_column = column + piece.shape[2]
            buffer[row:next_row, :, column:next_column, :] = piece
            column = next_column
        row = next_row
    return buffer


def grown(buffer: mx.array, written: int, capacity: int) -> mx.array:
    """The written columns in a buffer of `capacity` columns."""
    rows, heads, _, dimension = buffer.shape
    added = mx.zeros((rows, heads, capacity - written, dimension), buffer.dtype)
    return mx.concatenate([buffer[..., :written, :], added], axis=2)


def first_columns(buffer: mx.array, columns: int) -> mx.array:
    """At most so many of the columns. No slice of a wider buffer: that would keep all of its bytes alive."""
    return mx.contiguous(buffer[..., :columns, :])


def blank(written: mx.array, capacity: int) -> mx.array:
    """A buffer of zeros for rows such as these, [B, H, any, D]."""
    rows, heads, _, dimension = written.shape
    return mx.zeros((rows, heads, capacity, dimension), written.dtype)


def column_bytes(*buffers: mx.array) -> int:
    """Bytes of one row's column over these buffers, [B, H, any, D] each."""
    return sum(buffer.shape[1] * buffer.shape[3] * buffer.itemsize for buffer in buffers)
