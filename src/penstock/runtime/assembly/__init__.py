"""Plan and model to the parts of one rank, in numbered phases."""

from penstock.runtime.assembly.assembly import assemble
from penstock.runtime.assembly.rank_parts import RankParts
from penstock.runtime.assembly.stages import forward_buffers

__all__ = ["RankParts", "assemble", "forward_buffers"]
