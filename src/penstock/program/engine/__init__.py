"""The compiled engine that executes a lowered program for proof and simulation."""

from penstock.program.engine.execution import Run, execute
from penstock.program.engine.progress import Progress, find_progress, find_progress_plainly
from penstock.program.engine.replica_sync import SyncGraph, count_waits, count_waits_plainly, find_sync_graph

__all__ = [
    "Progress",
    "Run",
    "SyncGraph",
    "count_waits",
    "count_waits_plainly",
    "execute",
    "find_progress",
    "find_progress_plainly",
    "find_sync_graph",
]
