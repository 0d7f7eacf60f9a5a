"""The proof that a lowered program can run: completeness, order, links, restrictions, deadlock, memory."""

from penstock.program.proof.memory import memory_use
from penstock.program.proof.proof import Proof, check_memory, memory_parts, prove
from penstock.program.proof.restrictions import (
    SYNC_HINT,
    BlockedSync,
    check_restrictions,
    find_blocked_sync,
    meets_restrictions,
)

__all__ = [
    "SYNC_HINT",
    "BlockedSync",
    "Proof",
    "check_memory",
    "check_restrictions",
    "find_blocked_sync",
    "meets_restrictions",
    "memory_parts",
    "memory_use",
    "prove",
]
