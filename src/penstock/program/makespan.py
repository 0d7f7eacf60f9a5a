"""How long a proved program takes, and nothing else: what searches need, without a timeline."""

from penstock.program.dependencies import durations
from penstock.program.engine import execute
from penstock.program.proof import Proof


def makespan_s(proof: Proof) -> float:
    """The iteration's seconds, as the simulator finds them."""
    program, wiring = proof.program, proof.wiring
    return execute(program, wiring, proof.costs, durations(program, proof.costs, wiring.jobs.replica)).seconds
