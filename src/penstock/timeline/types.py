"""A timeline: what happened when, simulated or measured."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.program import Kind, Program


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of every action of a lowered program, in its order, and what each of them waited for.

    A send, a receive and a reduction start when their transfer starts, and end when it has arrived.
    """

    program: Program
    origin: str
    """"simulated" or "measured"."""
    start_s: Floats
    end_s: Floats
    num_bytes: Floats
    """What each send and receive moves, and what a device sends in a reduction; zero for others."""
    memory_during: Floats
    """Bytes on the device while each action runs."""
    memory_after: Floats
    cause: Ints
    """The action whose end let each action start; NONE where nothing held it back. For what waits for a transfer this
    is the send (or the reduction on the same device), whose own cause says what the transfer waited for."""
    is_warm_up: bool = False
    """Whether it was measured in the first iteration of a run, which takes longer than the others."""

    @cached_property
    def iteration_s(self) -> float:
        """From the start of the iteration to the moment when the next one could start."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @cached_property
    def is_compute(self) -> npt.NDArray[np.bool_]:
        """Which actions keep their device busy."""
        return np.asarray(self.program.kind <= Kind.STEP)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from penstock.timeline.notebook import timeline_html

        return timeline_html(self)
