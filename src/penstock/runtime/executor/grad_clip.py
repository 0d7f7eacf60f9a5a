"""Clipping by the norm of all gradients together, as `torch.nn.utils.clip_grad_norm_` does it in one process."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import failing_in_words
from penstock.errors import RunError
from penstock.runtime.transport import Mail


class Clipping:
    """A rank's part in that.

    Every parameter's norm is told by one of the ranks that have its gradient, so each counts once; then all ranks put
    the same norms together in the model's order, which gives the bits that one process would have.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], tellers: Mapping[str, int], group: Any, mail: Mail
    ) -> None:
        """All trained parameters in the model's order, and for each the rank that tells its norm."""
        rank = dist.get_rank(group)
        self._told_here = [
            (number, item) for number, (name, item) in enumerate(parameters.items()) if tellers[name] == rank
        ]
        self._num = len(parameters)
        dtypes = (item.dtype for item in parameters.values())
        self._dtype = functools.reduce(torch.promote_types, dtypes, torch.bfloat16)
        self._group = group
        self._mail = mail

    def norm(self, kind: float) -> Tensor:
        """The norm of all gradients."""
        # A sum with zeros changes no bit, and doubles hold every smaller type.
        told = torch.zeros(2, self._num, dtype=torch.float64)
        for number, parameter in self._told_here:
            if parameter.grad is not None:
                told[0, number] = torch.linalg.vector_norm(parameter.grad, kind)
                told[1, number] = 1.0
        with failing_in_words(self._telling):
            work = dist.all_reduce(told, group=self._group, async_op=True)
        self._mail.wait(work, self._telling)
        norms = told[0][told[1] > 0].to(self._dtype)
        return torch.linalg.vector_norm(norms, kind) if len(norms) else torch.zeros((), dtype=self._dtype)

    def _telling(self) -> str:
        return f"rank {dist.get_rank(self._group)}, puts the norms of gradients together"


def clip(parameters: Sequence[nn.Parameter], total: Tensor, max_norm: float, *, strict: bool) -> None:
    """Scale the gradients of these parameters so that all, whose norm is `total`, have at most this one together."""
    if strict and not torch.isfinite(total):
        raise RunError(
            f"the norm of the gradients is {total.item()}",
            hint="Look for the step where the loss stops being finite, with check_finite=True.",
        )
    torch.nn.utils.clip_grads_with_norm_(list(parameters), max_norm, total)
