"""The compiled simulator: equal to the reference to the bit, about a hundred times as fast."""

import numpy as np

from penstock.program import durations
from penstock.program.engine import execute
from penstock.program.proof import Proof
from penstock.timeline import Timeline, build_timeline


def simulate(proof: Proof) -> Timeline:
    """Simulate a proved program.

    Args:
        proof: The proof of a lowered program.

    Returns:
        The simulated timeline.
    """
    program, dependencies = proof.program, proof.dependencies
    run = execute(program, dependencies, proof.costs, durations(program, proof.costs, proof.jobs.replica))
    start, end = run.start, run.end
    issued = np.flatnonzero(dependencies.transfer_of >= 0)
    transfer = dependencies.transfer_of[issued]
    start[issued], end[issued] = run.begun[transfer], run.arrived[transfer]
    return build_timeline(proof, start, end, "simulated")
