"""The compiled engine that executes a lowered program for proof and simulation."""

from penstock.program.engine.execution import (
    Run,
    count_transfers_needed,
    execute,
    execute_plainly,
    is_compiled_used,
)
from penstock.program.engine.replica_sync import SyncGraph, count_waits, count_waits_plainly, find_sync_graph

__all__ = [
    "Run",
    "SyncGraph",
    "count_transfers_needed",
    "count_waits",
    "count_waits_plainly",
    "execute",
    "execute_plainly",
    "find_sync_graph",
    "is_compiled_used",
]
