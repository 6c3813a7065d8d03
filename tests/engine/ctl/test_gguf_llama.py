"""The llama family's form of weights."""

import numpy as np

from engine.ctl.gguf_llama import unpermute
from tests.engine.ctl.tiny_gguf import HEAD_DIM, permute


def test_unpermute_undoes_llama_cpps_permutation() -> None:
    """For every count of heads."""
    for heads in (1, 2, 3, 9):
        weight = np.arange(heads * HEAD_DIM * 5).reshape(heads * HEAD_DIM, 5)
        np.testing.assert_array_equal(unpermute(permute(weight, heads), heads), weight)
