"""Import: what a training engine runs today, as a plan of Penstock."""

from penstock.export.imports.running import import_plan

__all__ = ["import_plan"]
