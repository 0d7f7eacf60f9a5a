"""Ranks that follow one process: each step's gradients are compared with its, and then taken from it.

Optimizers like Adam make a step of full size of any gradient, even of one that is nothing but rounding (that of a bias
before batch norm, which is zero in exact numbers). There, trainings that differ in last bits at first soon differ for
all to see. With the gradients of one process in every step, what differs is what the ranks computed, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ROUNDING = 1e-6
"""A gradient that is less than this part of all gradients together has no digits of its own in float32."""
OWN_TOLERANCE = 1e-3
"""How far any other one may be off, as a part of itself: where terms cancel, several digits go."""

Named = Mapping[str, Tensor | None]
Offs = dict[str, tuple[float, float]]
"""By name: the size (norm) of a gradient's difference, and that of the gradient of one process."""


def gradients_of(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor | None]:
    """Copies of the gradients."""
    return {name: None if item.grad is None else item.grad.clone() for name, item in parameters.items()}


class Following:
    """One rank that follows."""

    def __init__(self, expected: Sequence[Named]) -> None:
        self._expected = expected
        self.offs: list[Offs] = []
        """Of each step."""

    def take(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Compare the gradients of the next step, and go on with those of one process."""
        expected = self._expected[len(self.offs)]
        self.offs.append({name: _off(item, expected[name]) for name, item in parameters.items()})
        for name, item in parameters.items():
            wanted = expected[name]
            item.grad = None if wanted is None else wanted.clone()


def _off(parameter: nn.Parameter, wanted: Tensor | None) -> tuple[float, float]:
    nothing = torch.zeros_like(parameter, dtype=torch.float64)
    mine, theirs = (nothing if item is None else item.double() for item in (parameter.grad, wanted))
    return _norm(mine - theirs), _norm(theirs)


@dataclass(frozen=True)
class GradientSameness:
    """How near the gradients of ranks were to those of one process."""

    num_steps: int
    together: float
    """The difference of all gradients together, relative to their size together, at the worst step."""
    rounding: tuple[str, ...]
    """Parameters whose gradients are nothing but rounding."""
    wrong: tuple[str, ...]
    """Parameters whose gradients are something else than those of one process."""

    def within(self, tolerance: float) -> bool:
        """Whether they are the same up to that."""
        return not self.wrong and self.together <= tolerance


def compare_gradients(ranks: Sequence[Sequence[Offs]]) -> GradientSameness:
    """From what each rank has found, step by step."""
    together = 0.0
    rounding: dict[str, None] = {}
    wrong: dict[str, None] = {}
    for step in zip(*ranks, strict=True):
        found: Offs = {}
        for held in step:
            for name, (off, size) in held.items():
                found[name] = (max(off, found.get(name, (0.0, 0.0))[0]), size)
        offs, sizes = torch.tensor(list(found.values()), dtype=torch.float64).reshape(-1, 2).unbind(1)
        total = _norm(sizes)
        together = max(together, _norm(offs) / total if total else _norm(offs))
        for name, (off, size) in found.items():
            if size <= ROUNDING * total:
                rounding[name] = None
            elif not off <= OWN_TOLERANCE * size:
                wrong[name] = None
    num_steps = len(ranks[0]) if ranks else 0
    return GradientSameness(num_steps, together, tuple(rounding), tuple(wrong))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))
