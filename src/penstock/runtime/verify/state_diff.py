"""Parameters and buffers after a distributed run, compared with those of a single process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


@dataclass(frozen=True)
class StateDiff:
    """The difference between the final state of a distributed run and that of a single process."""

    num_tensors: int
    num_equal: int
    """Number of tensors that are equal to the bit."""
    worst_name: str
    worst: float
    """The largest difference of a tensor, relative to its norm."""
    together: float
    """The norm of the difference of all tensors, relative to the norm of all tensors."""
    torn: tuple[str, ...]
    """Names of tensors that differ between ranks."""
    missing: tuple[str, ...]
    """Names of tensors that only one of the two runs has."""

    def within(self, tolerance: float) -> bool:
        """Whether the states are equal up to a relative tolerance."""
        return not self.torn and not self.missing and self.together <= tolerance


def compare_states(single_process: Named, ranks: Sequence[Named]) -> StateDiff:
    """Compare the tensors of all ranks with those of a single process.

    Args:
        single_process: The tensors of the single process, by name.
        ranks: The tensors that each rank holds, by name.
    """
    merged: dict[str, Tensor] = {}
    torn = []
    for held in ranks:
        for name, tensor in held.items():
            if not _equal(tensor, merged.setdefault(name, tensor)):
                torn.append(name)
    missing = sorted(set(single_process) ^ set(merged))
    both = [name for name in single_process if name in merged]
    errors = {name: _norm(merged[name].double() - single_process[name].double()) for name in both}
    sizes = {name: _norm(single_process[name].double()) for name in both}
    relative = {name: _divide(errors[name], sizes[name]) for name in both}
    worst = max(both, key=lambda name: (relative[name] != relative[name], relative[name]), default="")
    return StateDiff(
        num_tensors=len(both),
        num_equal=sum(_equal(merged[name], single_process[name]) for name in both),
        worst_name=worst,
        worst=relative.get(worst, 0.0),
        together=_divide(_total_norm(errors), _total_norm(sizes)),
        torn=tuple(dict.fromkeys(torn)),
        missing=tuple(missing),
    )


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))


def _total_norm(norms: Mapping[str, float]) -> float:
    return _norm(torch.tensor(list(norms.values()), dtype=torch.float64))


def _divide(error: float, size: float) -> float:
    return error / size if size else error
