"""The iteration time of a proved program, without a timeline, for searches."""

from penstock.program.dependencies import durations
from penstock.program.engine import execute
from penstock.program.proof import Proof


def makespan_s(proof: Proof) -> float:
    """The iteration's seconds, as the simulator finds them."""
    program, dependencies = proof.program, proof.dependencies
    return execute(
        program, dependencies, proof.costs, durations(program, proof.costs, dependencies.jobs.replica)
    ).seconds
