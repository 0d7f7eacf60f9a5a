"""Gradient clipping by the norm over all ranks, as `torch.nn.utils.clip_grad_norm_` does in one process."""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.device import is_accelerator
from penstock.dist import translate_errors
from penstock.errors import RunError
from penstock.runtime.sharding import Slice, collect_whole
from penstock.runtime.tensors import grad_dtype
from penstock.runtime.transport import TorchTransport


class GradNorm:
    """The norm of all gradients of the model.

    For each parameter, one of the ranks that have its gradient contributes the norm, so that each counts once. Then all
    ranks combine the same norms in the order of the model, which gives the same bits as one process. The gradient of a
    parameter that a sharded optimizer divides is put together before.

    Args:
        parameters: All trained parameters, in the order of the model.
        owners: For each of them, the rank that contributes its norm.
        group: The control group.
        transport: Waits for the collective.
        slices: The divided parameters that this rank has a piece of.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        owners: Mapping[str, int],
        group: Any,
        transport: TorchTransport,
        slices: Mapping[str, Slice] = MappingProxyType({}),
    ) -> None:
        self._rank = rank = dist.get_rank(group)
        self._slices = slices
        self._pieces = {name: parameters[name] for name in slices}
        self._numbers = {name: number for number, name in enumerate(parameters)}
        self._owned = [
            (number, item)
            for number, (name, item) in enumerate(parameters.items())
            if owners[name] == rank and name not in slices
        ]
        self._num_parameters = len(parameters)
        # Of a parameter that this rank does not train, only the layer's own may be here.
        dtypes = (grad_dtype(item) for item in parameters.values())
        self._dtype = functools.reduce(torch.promote_types, dtypes, torch.bfloat16)
        self._group = group
        self._transport = transport

    def compute(self, norm_type: float) -> Tensor:
        """Return the norm. Collective."""
        # Adding zeros changes no bit, and a double holds every smaller type.
        table = torch.zeros(2, self._num_parameters, dtype=torch.float64)
        owned = [(number, item.grad) for number, item in self._owned if item.grad is not None]
        owned += self._divided()
        if owned:
            numbers = torch.tensor([number for number, _ in owned])
            norms = grad_norms([grad for _, grad in owned], norm_type)
            table[0, numbers], table[1, numbers] = norms.to("cpu", torch.float64), 1.0
        with translate_errors(self._describe):
            work = dist.all_reduce(table, group=self._group, async_op=True)
        self._transport.wait(work, self._describe)
        norms = table[0][table[1] > 0].to(self._dtype)
        return torch.linalg.vector_norm(norms, norm_type) if len(norms) else torch.zeros((), dtype=self._dtype)

    def _divided(self) -> list[tuple[int, Tensor]]:
        """The gradients of divided parameters whose first piece this rank has."""
        pieces = {name: {} if item.grad is None else {"grad": item.grad} for name, item in self._pieces.items()}
        with translate_errors(self._describe):
            whole = collect_whole(pieces, self._slices, self._rank, self._transport)
        return [
            (self._numbers[name], values["grad"].to(self._pieces[name].device))
            for name, values in whole.items()
            if values
        ]

    def _describe(self) -> str:
        return f"rank {dist.get_rank(self._group)}, computing the gradient norm"


def grad_norms(grads: Sequence[Tensor], norm_type: float) -> Tensor:
    """Return the norm of each gradient, by the kernels that torch uses on their device to clip gradients."""
    if is_accelerator(grads[0].device):
        norms: Sequence[Tensor] = torch._foreach_norm(list(grads), norm_type)
    else:
        norms = [torch.linalg.vector_norm(grad, norm_type) for grad in grads]
    return torch.stack([norm.to(torch.float64) for norm in norms])


def clip_grads(parameters: Sequence[nn.Parameter], total: Tensor, max_norm: float, *, strict: bool) -> None:
    """Scale the gradients of this rank's parameters, given the norm of all gradients.

    Raises:
        RunError: With `strict`, if the norm is not finite.
    """
    if strict and not torch.isfinite(total):
        raise RunError(
            f"the gradient norm is not finite ({total.item()})",
            hint="Find the step in which the loss stops being finite with check_finite=True.",
        )
    torch.nn.utils.clip_grads_with_norm_(list(parameters), max_norm, total)
