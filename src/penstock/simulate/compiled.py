"""The compiled twin of the reference: the same numbers, bit for bit, some hundred times faster."""

import numpy as np

from penstock.program import durations
from penstock.program.engine import execute
from penstock.program.proof import Proof
from penstock.timeline import Timeline, build_timeline


def simulate(proof: Proof) -> Timeline:
    """The timeline of a program that has been proved."""
    program, wiring = proof.program, proof.wiring
    run = execute(program, wiring, proof.costs, durations(program, proof.costs, wiring.jobs.replica))
    start, end = run.start, run.end
    issued = np.flatnonzero(wiring.transfer_of >= 0)
    transfer = wiring.transfer_of[issued]
    start[issued], end[issued] = run.begun[transfer], run.arrived[transfer]
    return build_timeline(proof, start, end, "simulated")
