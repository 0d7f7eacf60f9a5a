"""Executing a lowered program: the proof checks that it ends, the simulator reads the times."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program.dependencies import Dependencies
from penstock.program.types import Program


class Run(NamedTuple):
    """Start and end of actions (the issue time for transfers), transfers, and progress."""

    start: Floats
    end: Floats
    begun: Floats
    """When each transfer began; nan if it never did."""
    arrived: Floats
    counter: npt.NDArray[np.int64]
    """The action at which each device stopped; the end of its actions if it ran all of them."""

    @property
    def seconds(self) -> float:
        """When the last action or transfer ended."""
        return max((float(times.max()) for times in (self.end, self.arrived) if len(times)), default=0.0)


def execute(program: Program, dependencies: Dependencies, costs: Costs, seconds: Floats) -> Run:
    """Execute a program with these seconds per action, as far as it runs."""
    from penstock.program.engine.engine_kernel import run_engine

    waits = np.bincount(dependencies.consumers.values, minlength=program.num_actions).astype(np.int32)
    num_interfaces = 2 * len(costs.cluster.hosts)
    return Run(*run_engine(program.offsets, program.device_of, dependencies, seconds, waits, num_interfaces))
