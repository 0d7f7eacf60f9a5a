"""One emulated rank: the real executor around stages that sleep."""

from penstock.emulation.rank.rank import join, run_rank
from penstock.emulation.rank.scratch import Scratch

__all__ = ["Scratch", "join", "run_rank"]
