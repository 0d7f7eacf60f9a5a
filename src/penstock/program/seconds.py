"""Seconds of actions."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing import Costs
from penstock.program.actions import Kind
from penstock.program.types import Program


def durations(program: Program, costs: Costs, replica: Ints) -> Floats:
    """Seconds for which each action occupies its device; zero for transfers."""
    seconds = np.zeros(program.num_actions)
    for kind, values in (
        (Kind.F, costs.forward_s),
        (Kind.R, costs.recompute_s),
        (Kind.I, costs.input_grad_s),
        (Kind.W, costs.weight_grad_s),
        (Kind.B, costs.backward_s),
        (Kind.STEP, costs.step_s),
    ):
        rows = program.rows_of(kind)
        seconds[rows] = values[replica[rows]]
    return seconds
