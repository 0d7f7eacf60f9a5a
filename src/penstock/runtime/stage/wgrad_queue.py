"""Weight gradients that wait for their turn: what I leaves behind for W."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.runtime.stage.wgrad_functions import WeightJob


class WeightJobs:
    """The jobs of one stage and one micro-batch, and the gradients that autograd has computed already.

    A parameter's gradients are summed in the order in which the backward came to them, in the type in which they are
    computed, and then added to what is there: as autograd does it.
    """

    def __init__(self) -> None:
        self._jobs: list[tuple[Sequence[Tensor], WeightJob]] = []
        self._done: list[tuple[Tensor, Tensor]] = []
        self._is_open = False

    def __len__(self) -> int:
        return sum(len(parameters) for parameters, _ in self._jobs)

    def defer(self, parameters: Sequence[Tensor], job: WeightJob) -> None:
        """Put a job off, within `set_aside`."""
        if not self._is_open:
            raise RunError(
                "a block goes back through its own layers while it goes forward, and weight gradients are put off",
                hint="Plan without parted backwards (--no-backward-split).",
            )
        self._jobs.append((parameters, job))

    @property
    def not_put_off(self) -> list[Tensor]:
        """The parameters that autograd itself has computed a gradient for."""
        return [parameter for parameter, _ in self._done]

    def handed_over(self) -> "WeightJobs":
        """All of it as another object; this one is empty afterwards."""
        found = WeightJobs()
        found._jobs, self._jobs = self._jobs, []
        found._done, self._done = self._done, []
        return found

    @contextmanager
    def set_aside(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Around the backward. What autograd adds to the gradients of these parameters meanwhile is kept for `run`."""
        self._is_open = True
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            yield
        finally:
            self._is_open = False
            for parameter, grad in zip(parameters, before, strict=True):
                if parameter.grad is not None:
                    self._done.append((parameter, parameter.grad))
                parameter.grad = grad

    @torch.no_grad()
    def run(self) -> None:
        """Do the jobs, and add up; what a job needed and made is let go of as soon as it is added."""
        left = Counter(parameter for parameters, _ in self._jobs for parameter in parameters)
        sums = dict(self._done)
        self._done.clear()
        self._jobs.reverse()
        while self._jobs:
            parameters, job = self._jobs.pop()
            for parameter, found in zip(parameters, job(), strict=True):
                total = sums.pop(parameter) + found if parameter in sums else found
                left[parameter] -= 1
                if left[parameter]:
                    sums[parameter] = total
                else:
                    _add(parameter, total)
                del found, total
            del job
        for parameter, total in sums.items():
            _add(parameter, total)


def _add(parameter: Tensor, total: Tensor) -> None:
    fresh = total if total.dtype == parameter.dtype else total.to(parameter.dtype)
    if parameter.grad is None:
        parameter.grad = fresh
    else:
        parameter.grad.add_(fresh)
