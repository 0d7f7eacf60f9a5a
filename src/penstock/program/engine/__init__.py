"""The compiled engine that executes a lowered program for proof and simulation."""

from penstock.program.engine.execution import Run, execute
from penstock.program.engine.progress import Progress, find_progress, find_progress_plainly

__all__ = ["Progress", "Run", "execute", "find_progress", "find_progress_plainly"]
