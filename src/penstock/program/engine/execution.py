"""Executing a lowered program: the simulator reads the times, lowering orders messages by them."""

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Int32s
from penstock.plan.pricing import Costs
from penstock.program.dependencies import Dependencies
from penstock.program.engine.plain_engine import PlainEngine
from penstock.program.types import Program

PLAIN_LIMIT = 200_000
"""Programs with at most this many actions (1 us each) are lowered and proved without compiled code (0.3 s to load)."""
_KERNEL = "penstock.program.engine.engine_kernel"


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


def is_compiled_used(num_actions: int) -> bool:
    """Whether compiled code runs a program of this size: if it is loaded already, or is worth loading."""
    return num_actions > PLAIN_LIMIT or _KERNEL in sys.modules


def count_transfers_needed(program: Program, dependencies: Dependencies) -> Int32s:
    """For each action the number of transfers that it waits for."""
    return np.bincount(dependencies.waiting.values, minlength=program.num_actions).astype(np.int32)


def execute(program: Program, dependencies: Dependencies, costs: Costs, seconds: Floats) -> Run:
    """Execute a program with these seconds per action, as far as it runs, with the compiled engine."""
    from penstock.program.engine.engine_kernel import run_engine

    waits = count_transfers_needed(program, dependencies)
    num_interfaces = 2 * len(costs.cluster.hosts)
    return Run(*run_engine(program.offsets, program.device_of, dependencies, seconds, waits, num_interfaces))


def execute_plainly(program: Program, dependencies: Dependencies, costs: Costs, seconds: Floats) -> Run:
    """The same without compiled code, which for a small program takes less time than loading that."""
    waits = count_transfers_needed(program, dependencies)
    engine = PlainEngine(program.offsets, program.device_of, dependencies, seconds, waits)
    engine.run(2 * len(costs.cluster.hosts))
    start, end, begun, arrived = (
        np.array(values, dtype=np.float64) for values in (engine.start, engine.end, engine.begun, engine.arrived)
    )
    return Run(start, end, begun, arrived, np.array(engine.counter, dtype=np.int64))
