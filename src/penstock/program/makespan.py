"""The iteration time of a proved program, without a timeline, for searches."""

from penstock.program.engine import execute
from penstock.program.proof import Proof
from penstock.program.seconds import durations


def makespan_s(proof: Proof) -> float:
    """The simulated iteration time in seconds."""
    seconds = durations(proof.program, proof.costs, proof.jobs.replica)
    return execute(proof.program, proof.dependencies, proof.costs, seconds).seconds
