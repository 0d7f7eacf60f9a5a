"""Gradients of sums: divided by the count of the whole batch, once it is known."""

from collections.abc import Iterable

from torch import Tensor, nn


class SumGrads:
    """The gradients of one iteration, apart from those of earlier ones, which are divided already.

    Args:
        parameters: The parameters that this rank trains.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._earlier: list[Tensor | None] = []

    def begin(self) -> None:
        """Set the gradients of earlier iterations aside."""
        self._earlier = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def finish(self, factor: float | None) -> None:
        """Multiply the gradients of this iteration, if there is a factor, and add those of earlier ones."""
        for parameter, earlier in zip(self._parameters, self._earlier, strict=True):
            grad = parameter.grad
            if grad is not None and factor is not None:
                grad.mul_(factor)
            if earlier is not None:
                parameter.grad = earlier if grad is None else earlier.add_(grad)
        self._earlier = []
