"""Whether ranks trained to the numbers of one process: every parameter and buffer that they hold in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Named = Mapping[str, Tensor]


@dataclass(frozen=True)
class Sameness:
    """How near they are."""

    num_tensors: int
    num_equal: int
    """Those that are equal to the bit."""
    worst_name: str
    worst: float
    """The largest difference of a tensor, relative to its size (norms)."""
    together: float
    """The difference of all tensors together, relative to their size together."""
    torn: tuple[str, ...]
    """Those that ranks hold with different numbers."""
    missing: tuple[str, ...]
    """Those that one side has and the other has not."""

    def within(self, tolerance: float) -> bool:
        """Whether the numbers are the same up to that."""
        return not self.torn and not self.missing and self.together <= tolerance


def compare_states(alone: Named, ranks: Sequence[Named]) -> Sameness:
    """Compare what each rank holds with what one process has."""
    together: dict[str, Tensor] = {}
    torn = []
    for held in ranks:
        for name, found in held.items():
            if not _equal(found, together.setdefault(name, found)):
                torn.append(name)
    missing = sorted(set(alone) ^ set(together))
    both = [name for name in alone if name in together]
    offs = {name: _norm(together[name].double() - alone[name].double()) for name in both}
    sizes = {name: _norm(alone[name].double()) for name in both}
    relative = {name: _over(offs[name], sizes[name]) for name in both}
    worst = max(both, key=lambda name: (relative[name] != relative[name], relative[name]), default="")
    return Sameness(
        num_tensors=len(both),
        num_equal=sum(_equal(together[name], alone[name]) for name in both),
        worst_name=worst,
        worst=relative.get(worst, 0.0),
        together=_over(_all(offs), _all(sizes)),
        torn=tuple(dict.fromkeys(torn)),
        missing=tuple(missing),
    )


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor))


def _all(norms: Mapping[str, float]) -> float:
    return _norm(torch.tensor(list(norms.values()), dtype=torch.float64))


def _over(off: float, size: float) -> float:
    return off / size if size else off
