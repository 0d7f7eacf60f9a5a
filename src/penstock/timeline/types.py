"""A timeline: what happened when, simulated or measured."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.program.types import Program

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of every action of a lowered program, in its order.

    A send, a receive and a reduction start when their transfer starts, and end when it has arrived.
    """

    program: Program
    start_s: Floats
    end_s: Floats

    @cached_property
    def iteration_s(self) -> float:
        """From the start of the iteration to the moment when the next one could start."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0
