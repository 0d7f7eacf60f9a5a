"""The compiled engine that executes a lowered program on paper."""

from penstock.program.engine.execution import Run, execute

__all__ = ["Run", "execute"]
