"""Weight gradients that wait for their turn: what I leaves behind for W."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from penstock.runtime.deferral import WeightJob


class WeightJobs:
    """The jobs of one segment and one micro-batch, and the gradients that autograd has computed already.

    A parameter's gradients are summed in the order in which the backward came to them, in the type in which they are
    computed, and then added to what is there: as autograd does it.
    """

    def __init__(self) -> None:
        self._jobs: list[tuple[Tensor, WeightJob]] = []
        self._done: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def defer(self, parameter: Tensor, job: WeightJob) -> None:
        """Put a job off."""
        self._jobs.append((parameter, job))

    @contextmanager
    def set_aside(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """What autograd adds to the gradients of these parameters meanwhile is kept for `run`."""
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, grad in zip(parameters, before, strict=True):
                if parameter.grad is not None:
                    self._done.append((parameter, parameter.grad))
                parameter.grad = grad

    @torch.no_grad()
    def run(self) -> None:
        """Do the jobs, and add up."""
        sums: dict[Tensor, Tensor] = dict(self._done)
        for parameter, job in self._jobs:
            found = job()
            if parameter in sums:
                sums[parameter] = sums[parameter] + found
            else:
                sums[parameter] = found
        for parameter, total in sums.items():
            fresh = total.to(parameter.dtype)
            if parameter.grad is None:
                parameter.grad = fresh
            else:
                parameter.grad.add_(fresh)
        self._jobs.clear()
        self._done.clear()
