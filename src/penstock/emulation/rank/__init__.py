"""One emulated rank: the real executor with stages that sleep."""

from penstock.emulation.rank.rank import run_rank
from penstock.emulation.rank.scratch import Scratch

__all__ = ["Scratch", "run_rank"]
