"""Auto: the best order that can be found for the plan at hand, within every device's memory.

For unequal stages on unequal links there is no closed form. Auto tries the other schedules and list scheduling
(greedy.py) with different amounts of memory in use, with the backward whole and split, and with more or less patience;
each is lowered and simulated, and the fastest that fits is taken. So it is never worse than any of them; and where list
scheduling has room for twice the stages, it meets the zero-bubble bound on equal stages.

Where nothing fits, the order that comes nearest is returned: the proof then says who is short of what.
Cost: that of simulating about thirty programs; for very large ones only a few are tried.
"""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from penstock.plan.costs import Costs
from penstock.program.lowering import lower
from penstock.program.makespan import makespan_s
from penstock.program.proof import prove
from penstock.program.types import Program
from penstock.schedules.clock import with_split
from penstock.schedules.gpipe import gpipe
from penstock.schedules.greedy import Greedy, Rules
from penstock.schedules.interleaved import interleaved
from penstock.schedules.one_f_one_b import one_f_one_b
from penstock.schedules.pe import pe
from penstock.schedules.zb_h1 import zb_h1
from penstock.schedules.zb_v import zb_v

NAMED: tuple[Callable[[Costs], Program], ...] = (one_f_one_b, zb_h1, zb_v, pe, interleaved, gpipe)
LARGE = 200_000
"""Jobs above which only a few orders are tried."""

Floats = npt.NDArray[np.float64]


def auto(costs: Costs) -> Program:
    """The fastest order found that fits into memory."""
    best: tuple[float, float] | None = None
    chosen: Program | None = None
    for candidate in candidates(costs):
        value = judge(candidate, costs)
        if best is None or value < best:
            best, chosen = value, candidate
    assert chosen is not None, "1F1B is always among the candidates"
    return chosen


def judge(program: Program, costs: Costs) -> tuple[float, float]:
    """(bytes over the limits, seconds): smaller is better."""
    proof = prove(lower(program, costs), costs, within_memory=False)
    return float(costs.over_bytes(proof.peak_bytes).max(initial=0.0)), makespan_s(proof)


def candidates(costs: Costs) -> Iterator[Program]:
    """Orders worth trying, the likely ones first."""
    whole = with_split(costs, False)
    num_jobs = 3 * costs.num_places * costs.num_microbatches
    is_large = num_jobs > LARGE
    for order in NAMED[: 2 if is_large else None]:
        yield order(whole)
    if not is_large:
        parted = with_split(costs, True)
        for order in (one_f_one_b, pe, interleaved, gpipe):
            yield order(parted)
    greedy = Greedy(costs)
    amounts = rooms(costs, greedy.kept)
    several = bool((np.bincount(costs.forward_device) > 1).any())
    for room in amounts[1:2] if is_large else amounts:
        for split, patience in ((True, 0.5), (True, 0.0), (True, 1.0), (False, 0.0)):
            for later_first in (True, False) if several else (True,):
                found = greedy.run(Rules(split, room, patience, later_first))
                if found is not None:
                    yield found
            if is_large:
                return


def rooms(costs: Costs, kept: Floats) -> list[Floats]:
    """How much each device may keep: multiples of what 1F1B's fullest device keeps, and all that there is."""
    in_flight = np.minimum(costs.plan.num_segments - costs.place_segment, costs.num_microbatches)
    fullest = float(np.bincount(costs.backward_device, weights=in_flight).max())
    num_held = np.maximum(np.bincount(costs.backward_device, minlength=costs.num_devices), 1)
    mean_kept = np.bincount(costs.backward_device, weights=kept, minlength=costs.num_devices) / num_held
    free = np.maximum(costs.memory_limit - costs.static_bytes, 0.0)
    return [
        np.minimum(multiple * fullest * mean_kept, free)
        for multiple in (1.0, 2.0, 1.5, 1.25, 3.0, float(costs.num_microbatches))
    ]
