"""Random numbers of rows: each a function of the row's seed, its position and a counter, of nothing else.

Owns no state, so whoever decodes beside a row, or in which order its candidates lie, changes no number of its.
"""

from typing import Final

import mlx.core as mx

from engine.row import Row

_WORD: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
# What tells the coin of XTC from the key of the draw at the same position.
_COIN: Final = 0x585443


def draw_keys(rows: tuple[Row, ...]) -> mx.array:
    """[R, 2] uint32: the key of each row's next draw."""
    words = [_word(row) for row in rows]
    return mx.array([[word & 0xFFFFFFFF, word >> 32] for word in words], dtype=mx.uint32)


def coin(row: Row) -> float:
    """A number in 0:1 for the row's next draw, independent of that draw's key."""
    return (_mixed(_word(row) ^ _COIN) >> 11) * 2.0**-53


def random_bits(keys: mx.array, counters: mx.array) -> mx.array:
    """[R, n] uint32 for keys [R, 2] and counters [R or 1, n] uint32.

    Two rounds of lowbias32 (Wellons, hash-prospector, 2018), one per word of the key.
    """
    return _lowbias(_lowbias(counters * 0x9E3779B1 ^ keys[:, :1]) ^ keys[:, 1:])


def exponential(bits: mx.array) -> mx.array:
    """Exponentially distributed float32 from random bits, in 6e-8:16.7, so that it and its logarithm are finite."""
    uniform = (bits >> 9).astype(mx.float32) * 2.0**-23 + 2.0**-24
    return -mx.log(uniform)


def gumbel(bits: mx.array) -> mx.array:
    """Gumbel distributed float32 from random bits."""
    return -mx.log(exponential(bits))


def _word(row: Row) -> int:
    return _mixed(_mixed(row.submit.seed + _GOLDEN) + row.drawn * _GOLDEN)


def _mixed(word: int) -> int:
    """The output function of splitmix64 (Steele, Lea, Flood 2014)."""
    word &= _WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _WORD
    return word ^ (word >> 31)


def _lowbias(word: mx.array) -> mx.array:
    word = (word ^ (word >> 16)) * 0x7FEB352D
    word = (word ^ (word >> 15)) * 0x846CA68B
    return word ^ (word >> 16)
