"""A timeline from the starts and ends of a program's actions."""

import numpy as np

from penstock.arrays import Floats
from penstock.program import NONE
from penstock.program.proof import Proof
from penstock.timeline.causes import find_causes
from penstock.timeline.types import Timeline


def build_timeline(proof: Proof, start_s: Floats, end_s: Floats, origin: str) -> Timeline:
    """Add bytes, memory and causes to starts and ends."""
    transfer = proof.dependencies.transfer_of
    moved = np.append(proof.dependencies.num_bytes, 0.0)
    return Timeline(
        program=proof.program,
        origin=origin,
        start_s=start_s,
        end_s=end_s,
        num_bytes=np.where(transfer == NONE, 0.0, moved[transfer]),
        memory_during=proof.memory.during,
        memory_after=proof.memory.after,
        cause=find_causes(proof, end_s),
    )
