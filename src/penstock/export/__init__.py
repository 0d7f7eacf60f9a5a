"""Plans as files of the training engines that people already run, and what these run as plans."""

from penstock.export.export import ENGINES, export_plan, find_engine, obstacles_to, require_exportable
from penstock.export.imports import import_plan
from penstock.export.limits import Limits, Obstacle
from penstock.export.restrict import restrict, with_equal_orders
from penstock.export.types import Engine, Export

__all__ = [
    "ENGINES",
    "Engine",
    "Export",
    "Limits",
    "Obstacle",
    "export_plan",
    "find_engine",
    "import_plan",
    "obstacles_to",
    "require_exportable",
    "restrict",
    "with_equal_orders",
]
