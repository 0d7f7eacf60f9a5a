"""Executing a wired program on paper: for the proof (does it end?) and for the simulator (when?)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program.dependencies import Wiring
from penstock.program.types import Program


class Run(NamedTuple):
    """Start and end of actions (when it is set going for those that take no time), transfers, and progress."""

    start: Floats
    end: Floats
    begun: Floats
    """When each transfer began; nan if it never did."""
    arrived: Floats
    counter: npt.NDArray[np.int64]
    """The action at which each device stopped; the end of its actions if it did them all."""

    @property
    def seconds(self) -> float:
        """When the last action or transfer ended."""
        return max((float(times.max()) for times in (self.end, self.arrived) if len(times)), default=0.0)


def execute(program: Program, wiring: Wiring, costs: Costs, seconds: Floats) -> Run:
    """Run a wired program with these seconds per action, as far as it goes."""
    from penstock.program.engine.engine_kernel import run_engine

    waits = np.bincount(wiring.consumers.values, minlength=program.num_actions).astype(np.int32)
    result = run_engine(
        program.offsets,
        program.device_of,
        wiring.transfer_of,
        seconds,
        waits,
        wiring.num_needs.copy(),
        wiring.next_on_links.begin,
        wiring.next_on_links.values,
        wiring.consumers.begin,
        wiring.consumers.values,
        wiring.num_bytes,
        wiring.occupancy_s,
        wiring.latency_s,
        wiring.interfaces.begin,
        wiring.interfaces.values,
        wiring.interface_s,
        2 * len(costs.cluster.hosts),
    )
    return Run(*result)
