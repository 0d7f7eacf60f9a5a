"""A tensor that has a shape and no numbers: what stands for the results of blocks that did not run."""

from typing import Any

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.model.tracing.record import COARSER


class Placeholder(torch.Tensor):
    """Answers what its shape, its type and its device are; computing with it is an error that says what is missing."""

    origin: str

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, origin: str) -> "Placeholder":
        """`origin` says in words what this stands for."""
        made = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        made.origin = origin
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        from penstock.model.trees import tensors_of

        missing = [tensor.origin for tensor in tensors_of((args, kwargs or {})) if isinstance(tensor, Placeholder)]
        raise InputError(
            f"forward computes {func} with {missing[0]}, which the blocks in between did not hand on", hint=COARSER
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Placeholder({tuple(self.shape)}, {self.dtype}: {self.origin})"
