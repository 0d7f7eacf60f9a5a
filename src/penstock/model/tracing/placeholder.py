"""A tensor with a shape and no data, for the results of blocks that do not run."""

from typing import Any

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER_BLOCKS


class Placeholder(torch.Tensor):
    """A tensor with shape, dtype and device. Computing with it raises an error that names the missing value."""

    origin: str

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, origin: str) -> "Placeholder":
        """Create a placeholder; `origin` describes the value for error messages."""
        placeholder = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        placeholder.origin = origin
        return placeholder

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from penstock.model.trees import tensors_of

        missing = [tensor.origin for tensor in tensors_of((args, kwargs or {})) if isinstance(tensor, Placeholder)]
        raise InputError(
            f"forward computes {func} with {missing[0]}, which is not among the activations between blocks",
            hint=COARSER_BLOCKS,
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Placeholder({tuple(self.shape)}, {self.dtype}: {self.origin})"
