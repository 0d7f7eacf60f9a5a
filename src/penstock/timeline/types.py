"""`Timeline`: the start and end of every action, simulated or measured."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
from penstock.program import Program, is_compute


@dataclass(frozen=True, eq=False)
class Timeline:
    """The start and end of every action of a lowered program, and what each action waited for.

    A send, a receive and a reduction start with their transfer and end when it has arrived.
    """

    program: Program
    origin: str
    """"simulated" or "measured"."""
    start_s: Floats
    end_s: Floats
    num_bytes: Floats
    """Bytes of each send and receive, and bytes that a device sends in a reduction; zero for others."""
    memory_during: Floats
    """Bytes on the device while each action runs."""
    memory_after: Floats
    cause: Ints
    """The action whose end let each action start; NONE if it did not wait. For an action that waited for a
    transfer this is the send (or the reduction on the same device); its own cause is what the transfer waited for."""
    is_warm_up: bool = False
    """Whether it was measured in the first iteration of a run, which takes longer than the others."""

    @cached_property
    def iteration_s(self) -> float:
        """From the start of the iteration to the earliest start of the next one."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0

    @cached_property
    def is_compute(self) -> npt.NDArray[np.bool_]:
        """Which actions occupy their device."""
        return np.asarray(is_compute(self.program.kind))

    def _repr_html_(self) -> str:
        """The timeline as HTML, for notebooks."""
        from penstock.timeline.notebook import timeline_html

        return timeline_html(self)
