"""The weight-gradient queue: functions that an input-gradient action (I) leaves for its weight-gradient action (W)."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from penstock.errors import RunError
from penstock.runtime.stage.wgrad_functions import WeightGradFn
from penstock.runtime.tensors import grad_dtype


class WeightGradQueue:
    """The deferred weight gradients of one stage and one micro-batch, and those that autograd computed already.

    The gradients of a parameter are summed in the order of the backward, in the type in which they are computed, and
    then added to `parameter.grad`, as autograd does it.
    """

    def __init__(self) -> None:
        self._deferred: list[tuple[Sequence[Tensor], WeightGradFn]] = []
        self._computed: list[tuple[Tensor, Tensor]] = []
        self._is_open = False

    def __len__(self) -> int:
        return sum(len(parameters) for parameters, _ in self._deferred)

    def defer(self, parameters: Sequence[Tensor], compute: WeightGradFn) -> None:
        """Add a function that computes the gradients of some parameters.

        Raises:
            RunError: Called outside `capture_grads`, because a layer calls autograd in its forward.
        """
        if not self._is_open:
            raise RunError(
                "a layer calls autograd inside forward(), which a split backward does not support",
                hint="Plan without split backwards (--no-backward-split).",
            )
        self._deferred.append((parameters, compute))

    @property
    def not_deferred(self) -> list[Tensor]:
        """The parameters whose gradients autograd computed itself."""
        return [parameter for parameter, _ in self._computed]

    def take_all(self) -> "WeightGradQueue":
        """Move all entries to a new queue."""
        queue = WeightGradQueue()
        queue._deferred, self._deferred = self._deferred, []
        queue._computed, self._computed = self._computed, []
        return queue

    @contextmanager
    def capture_grads(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        """Context of the backward: capture what autograd adds to the gradients of these parameters, for `run`."""
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
                    self._computed.append((parameter, parameter.grad))
                parameter.grad = grad

    @torch.no_grad()
    def run(self) -> None:
        """Compute and accumulate all gradients. Each function is freed, with its tensors, as soon as it has run."""
        left = Counter(parameter for parameters, _ in self._deferred for parameter in parameters)
        sums = dict(self._computed)
        self._computed.clear()
        self._deferred.reverse()
        while self._deferred:
            parameters, compute = self._deferred.pop()
            for parameter, grad in zip(parameters, compute(), strict=True):
                total = _add(parameter, sums.pop(parameter), grad) if parameter in sums else grad
                left[parameter] -= 1
                if left[parameter]:
                    sums[parameter] = total
                else:
                    _accumulate(parameter, total)
                del grad, total
            del compute
        for parameter, total in sums.items():
            _accumulate(parameter, total)


def _add(parameter: Tensor, total: Tensor, grad: Tensor) -> Tensor:
    """Add two gradients of one backward. Autograd adds them before it converts the sum to the type of `.grad`."""
    is_converted = total.dtype != grad.dtype == parameter.dtype
    return (total.to(grad.dtype) if is_converted else total) + grad


def _accumulate(parameter: Tensor, total: Tensor) -> None:
    grad = total.to(grad_dtype(parameter))
    if parameter.grad is None:
        parameter.grad = grad
    else:
        parameter.grad.add_(grad)
