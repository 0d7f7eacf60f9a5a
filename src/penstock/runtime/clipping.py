"""Clipping by the norm of all gradients together, as `torch.nn.utils.clip_grad_norm_` does it in one process."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import RunError
from penstock.runtime.mail import Mail


class Clipping:
    """A rank's part in that.

    Every parameter's norm is told by one of the ranks that have its gradient, so each counts once; then all ranks put
    the same norms together in the model's order, which gives the bits that one process would have.
    """

    def __init__(
        self, names: Sequence[str], owned: Mapping[str, nn.Parameter], dtype: torch.dtype, group: Any, mail: Mail
    ) -> None:
        self._owned = [(names.index(name), parameter) for name, parameter in owned.items()]
        self._num = len(names)
        self._dtype = dtype
        self._group = group
        self._mail = mail

    def norm(self, kind: float) -> Tensor:
        """The norm of all gradients."""
        # A sum with zeros changes no bit, and doubles hold every smaller type.
        told = torch.zeros(2, self._num, dtype=torch.float64)
        for number, parameter in self._owned:
            if parameter.grad is not None:
                told[0, number] = torch.linalg.vector_norm(parameter.grad, kind)
                told[1, number] = 1.0
        work = dist.all_reduce(told, group=self._group, async_op=True)
        self._mail.wait(work, lambda: f"rank {dist.get_rank(self._group)}, puts the norms of gradients together")
        norms = told[0][told[1] > 0].to(self._dtype)
        return torch.linalg.vector_norm(norms, kind) if len(norms) else torch.zeros((), dtype=self._dtype)

    def clip(self, parameters: Sequence[nn.Parameter], max_norm: float, kind: float, *, strict: bool) -> Tensor:
        """Scale the gradients of these parameters so that all together have at most this norm; the norm before."""
        total = self.norm(kind)
        if strict and not torch.isfinite(total):
            raise RunError(
                f"the norm of the gradients is {total.item()}",
                hint="Look for the step where the loss stops being finite, with check_finite=True.",
            )
        torch.nn.utils.clip_grads_with_norm_(list(parameters), max_norm, total)
        return total


def owned_by(rank: int, trainers: Mapping[str, int], trained: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """The parameters whose norm this rank tells."""
    return {name: parameter for name, parameter in trained.items() if trainers[name] == rank}
