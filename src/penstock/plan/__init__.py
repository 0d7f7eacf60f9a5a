"""Plans: which devices run the forward and the backward of which stage."""

from penstock.plan.complexity import Complexity, complexity_of
from penstock.plan.grid import Grid, find_grid
from penstock.plan.message_model import OVERLAPPED, MessageModel
from penstock.plan.notebook import ink_on
from penstock.plan.shapes import Shape
from penstock.plan.types import (
    FORMAT,
    MAX_MICROBATCHES,
    SHARE_TOLERANCE,
    DeviceOrder,
    Group,
    Order,
    Origin,
    Plan,
    PlannedLayer,
    Replica,
    Stage,
    load_plan,
    on,
    planned_layers,
    save_plan,
)

__all__ = [
    "FORMAT",
    "MAX_MICROBATCHES",
    "OVERLAPPED",
    "SHARE_TOLERANCE",
    "Complexity",
    "DeviceOrder",
    "Grid",
    "Group",
    "MessageModel",
    "Order",
    "Origin",
    "Plan",
    "PlannedLayer",
    "Replica",
    "Shape",
    "Stage",
    "complexity_of",
    "find_grid",
    "ink_on",
    "load_plan",
    "on",
    "planned_layers",
    "save_plan",
]
