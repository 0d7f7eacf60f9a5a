"""The form of the sample inputs of a model, which all later inputs must have: structure, and values of non-tensors."""

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import MismatchError
from penstock.model.blocks import Activations
from penstock.model.row_lists import map_batch, resized, split_batch
from penstock.model.trees import map_tensors, rows_of

_TENSOR = object()
"""Stands for a tensor."""


class InputForm:
    """The form of sample inputs. Lists with an item for every row may have other numbers of items.

    Args:
        sample: The sample inputs.
    """

    def __init__(self, sample: Activations) -> None:
        self._sample = map_tensors(lambda _tensor: _TENSOR, sample)
        self._has_lists = bool(split_batch(sample)[1])
        self._flat: dict[int, tuple[list[Any], pytree.TreeSpec]] = {0: pytree.tree_flatten(self._sample)}
        """The leaves and the structure, by number of rows; under 0 those of the sample."""

    def shapes(self, inputs: Activations) -> tuple[Any, ...]:
        """Return shape and type of each tensor of inputs.

        Raises:
            MismatchError: The structure of the inputs, or a value that is no tensor, differs from that of the sample.
        """
        leaves, spec = pytree.tree_flatten(inputs)
        sample_leaves, sample_spec = self._flat[0] if not self._has_lists else self._of_rows(rows_of(inputs))
        if spec != sample_spec:
            raise MismatchError("the structure of the inputs differs from that of the sample inputs")
        for leaf, sample in zip(leaves, sample_leaves, strict=True):
            is_tensor = sample is _TENSOR
            if isinstance(leaf, Tensor) != is_tensor or (not is_tensor and leaf != sample):
                raise MismatchError(
                    f"an input is {leaf!r}, but was {'a tensor' if is_tensor else repr(sample)} in the sample inputs",
                    hint="Pass values that change between calls as tensors.",
                )
        return tuple((leaf.shape, leaf.dtype) for leaf in leaves if isinstance(leaf, Tensor))

    def _of_rows(self, num: int) -> tuple[list[Any], pytree.TreeSpec]:
        if num not in self._flat:
            tree = map_batch(self._sample, lambda tensor: tensor, lambda items: resized(items[:1], num))
            self._flat[num] = pytree.tree_flatten(tree)
        return self._flat[num]
