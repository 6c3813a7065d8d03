"""Pads, positions and masks of a left-padded batch."""

import mlx.core as mx
import pytest

from engine.cache.layout import Layout


@pytest.mark.parametrize(
    ("joining", "pads", "width"),
    [
        ([12], [2, 5, 0], 12),  # longer: running pads grow by the difference, its own is 0
        ([4], [0, 3, 6], 10),  # shorter: its pad is the difference
        ([4, 12], [2, 5, 8, 0], 12),
    ],
)
def test_join_right_aligns_at_the_widest(joining: list[int], pads: list[int], width: int) -> None:
    """B6: pads after a longer, a shorter, and two joiners."""
    joined = Layout.side_by_side([Layout([0, 3], 10), *(Layout([0], length) for length in joining)])
    assert (joined.pads, joined.width) == (pads, width)


def test_padding_of_the_joining_side_is_kept() -> None:
    """Two padded batches side by side: every row keeps its own tokens' columns."""
    joined = Layout.side_by_side([Layout([2, 0], 5), Layout([0, 3], 9)])
    assert (joined.pads, joined.width) == ([6, 4, 0, 3], 9)


@pytest.mark.parametrize(("keep", "pads", "width"), [([1, 2], [0, 4], 7), ([0, 1], [0, 3], 10), ([2], [0], 3)])
def test_leave_trims_the_shared_padding(keep: list[int], pads: list[int], width: int) -> None:
    """B7: when the widest row leaves, the padding that all others share is cut."""
    kept = Layout([0, 3, 7], 10).kept(keep)
    assert (kept.pads, kept.width) == (pads, width)


def test_offset_is_an_int_without_padding_and_per_row_with_it() -> None:
    """Unpadded rows share one scalar position; padded rows each have their own."""
    assert Layout([0, 0], 8).offset == 8
    offset = Layout([0, 3], 8).offset
    assert isinstance(offset, mx.array)
    assert offset.tolist() == [8, 5]


def test_positions_and_masks_hold_still_until_advance() -> None:
    """Within a forward every layer sees the same objects; the next forward sees moved ones."""
    layout = Layout([0, 3], 8)
    offset, mask = layout.offset, layout.mask(1, False, None)
    assert layout.offset is offset
    assert layout.mask(1, False, None) is mask
    layout.advance(1)
    assert isinstance(layout.offset, mx.array)
    assert layout.offset.tolist() == [9, 6]
    moved = layout.mask(1, False, None)
    assert isinstance(moved, mx.array)
    assert moved.shape == (2, 1, 1, 10)


def test_mask_hides_padding_alone() -> None:
    """A decode step sees every column but the row's own padding, the new column included."""
    mask = Layout([0, 2], 3).mask(1, False, None)
    assert isinstance(mask, mx.array)
    assert mask.dtype == mx.bool_
    assert mask.tolist() == [[[[True, True, True, True]]], [[[False, False, True, True]]]]


def test_mask_of_several_tokens_is_causal_too() -> None:
    """For more than one token a column after the token's own is hidden as well."""
    mask = Layout([0, 1], 1).mask(2, False, None)
    assert isinstance(mask, mx.array)
    assert mask.tolist() == [
        [[[True, True, False], [True, True, True]]],
        [[[False, True, False], [False, True, True]]],
    ]


@pytest.mark.parametrize(("tokens", "expected"), [(1, None), (4, "causal")])
def test_unpadded_rows_need_no_mask_array(tokens: int, expected: str | None) -> None:
    """B8: without padding no array is built; a window still gets one."""
    assert Layout([0, 0], 8).mask(tokens, False, None) == expected
    assert isinstance(Layout([0, 0], 8).mask(tokens, False, 4), mx.array)


def test_a_caller_that_wants_an_array_gets_one_for_several_tokens() -> None:
    """As mlx-lm's own caches: a single unpadded token sees everything, whoever asks."""
    assert isinstance(Layout([0, 0], 8).mask(4, True, None), mx.array)
    assert Layout([0, 0], 8).mask(1, True, None) is None
