"""The proof that a lowered program can run: completeness, order, links, deadlock, memory."""

from penstock.program.proof.memory import memory_use
from penstock.program.proof.proof import Proof, check_memory, prove

__all__ = ["Proof", "check_memory", "memory_use", "prove"]
