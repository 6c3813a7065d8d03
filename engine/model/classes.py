"""Which class computes a model: mlx-lm's, or one of ours where mlx-lm's cannot take rows at different positions."""

from typing import Any, Final, NamedTuple

from mlx_lm.models import llama4
from mlx_lm.utils import _get_classes

from engine.model.llama4 import RowwiseLlama4


class ModelClasses(NamedTuple):
    """A model and what its config becomes, as mlx-lm's loader takes them."""

    model: type[Any]
    arguments: type[Any]


_OURS: Final[dict[str, ModelClasses]] = {"llama4": ModelClasses(RowwiseLlama4, llama4.ModelArgs)}


def model_classes(config: dict[str, Any]) -> ModelClasses:
    """By config.json's model_type. Raises ValueError for one that mlx-lm does not know."""
    return _OURS.get(config["model_type"]) or ModelClasses(*_get_classes(config))
