"""Comparing the losses of two runs."""

import math

from penstock.launch.events import Stepped


def loss_difference(one: Stepped, other: Stepped) -> float:
    """How far two losses are apart, relative to the first; none of them a number: not at all."""
    if one.loss == other.loss or (math.isnan(one.loss) and math.isnan(other.loss)):
        return 0.0
    found = abs(one.loss - other.loss) / abs(one.loss) if one.loss else abs(other.loss)
    return found if math.isfinite(found) else math.inf
