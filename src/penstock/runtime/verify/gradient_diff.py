"""Gradients of a distributed run, compared with those of a single process step by step.

Optimizers like Adam make a full-size step of any gradient, even of one that is pure rounding (such as that of a bias
before batch norm, which is zero in exact arithmetic). Then two runs that differ in last bits at first soon differ
visibly. So every step continues with the gradients of the single process, and any difference comes from that step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

ROUNDING = 1e-6
"""A gradient smaller than this part of all gradients together is pure rounding in float32."""
OWN_TOLERANCE = 1e-3
"""Relative difference allowed for any other gradient. Where terms cancel, several digits are lost."""

Named = Mapping[str, Tensor | None]
GradientErrors = dict[str, tuple[float, float]]
"""By name: the norm of the difference to the single process, and the norm of the gradient of the single process."""


def copy_gradients(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor | None]:
    """Copy the gradients of some parameters, by name."""
    return {name: None if item.grad is None else item.grad.clone() for name, item in parameters.items()}


class ReferenceGradients:
    """The gradients of a single process, which one rank compares with its own and then uses.

    Args:
        expected: The gradients of each step, by name.
    """

    def __init__(self, expected: Sequence[Named]) -> None:
        self._expected = expected
        self.errors: list[GradientErrors] = []
        """The differences of each step so far."""

    def replace(
        self, parameters: Mapping[str, nn.Parameter], slices: Mapping[str, tuple[int, int]] = MappingProxyType({})
    ) -> None:
        """Compare the gradients of the next step with those of the single process, and replace them.

        `slices` has the elements of parameters that are pieces.
        """
        expected = dict(self._expected[len(self.errors)])
        for name, (start, stop) in slices.items():
            whole = expected[name]
            expected[name] = None if whole is None else whole.reshape(-1)[start:stop].view(parameters[name].shape)
        shown = {name: f"{name}[{start}:{stop}]" for name, (start, stop) in slices.items()}
        self.errors.append({shown.get(name, name): _error(item, expected[name]) for name, item in parameters.items()})
        for name, item in parameters.items():
            grad = expected[name]
            item.grad = None if grad is None else grad.to(item.device, copy=True)


def _error(parameter: nn.Parameter, expected: Tensor | None) -> tuple[float, float]:
    zeros = torch.zeros_like(parameter, dtype=torch.float64)
    grads = (parameter.grad, expected)
    actual, reference = (zeros if item is None else item.to(zeros.device, torch.float64) for item in grads)
    return _norm(actual - reference), _norm(reference)


@dataclass(frozen=True)
class GradientDiff:
    """The difference between the gradients of a distributed run and those of a single process."""

    num_steps: int
    together: float
    """The norm of the difference of all gradients, relative to the norm of all gradients, in the worst step."""
    rounding: tuple[str, ...]
    """Parameters whose gradients are pure rounding."""
    wrong: tuple[str, ...]
    """Parameters whose gradients differ by more than rounding."""

    def within(self, tolerance: float) -> bool:
        """Whether the gradients are equal up to a relative tolerance."""
        return not self.wrong and self.together <= tolerance


def compare_gradients(
    ranks: Sequence[Sequence[GradientErrors]], *, rounding_error: float = ROUNDING, own_tolerance: float = OWN_TOLERANCE
) -> GradientDiff:
    """Combine the differences that each rank found, step by step.

    Args:
        ranks: For each rank, `ReferenceGradients.errors`.
        rounding_error: A gradient smaller than this part of all gradients together is pure rounding.
        own_tolerance: Relative difference allowed for any other gradient.
    """
    together = 0.0
    rounding: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for step in zip(*ranks, strict=True):
        merged: GradientErrors = {}
        for errors in step:
            for name, (error, size) in errors.items():
                merged[name] = (max(error, merged.get(name, (0.0, 0.0))[0]), size)
        all_errors, sizes = torch.tensor(list(merged.values()), dtype=torch.float64).reshape(-1, 2).unbind(1)
        total = _norm(sizes)
        together = max(together, _norm(all_errors) / total if total else _norm(all_errors))
        for name, (error, size) in merged.items():
            if size <= rounding_error * total:
                rounding[name] = None
            elif not error <= own_tolerance * size:
                wrong[name] = None
    num_steps = len(ranks[0]) if ranks else 0
    return GradientDiff(num_steps, together, tuple(rounding), tuple(wrong))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
