"""Orders that fit into memory: which do, and list scheduling with as much memory as fits.

List scheduling limits what a device keeps from F to W. Its peak also contains buffers of messages, and I may free a
part of what F keeps. So the room for what is kept is found by trial: after each run it changes by what the real peak
leaves or exceeds.

List scheduling can be slower with more room. So it is also tried with less memory than there is, and with less and less
if nothing fits.
"""

import math
from collections.abc import Sequence

import numpy as np

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program import Program
from penstock.program.lowering import lower
from penstock.program.proof import memory_use
from penstock.schedules.search.estimate import Estimator
from penstock.schedules.search.greedy import Greedy, Rules

MAX_TRIALS = 3
"""Runs of list scheduling to find the room that a device has."""
NEAR = 0.02
"""Peaks this close to the limit, as a part of the room, need no further trial."""
STEP = 1.05
"""Factor between the amounts of memory that are tried too. They are the same ones for every limit: what is found within
a limit is also found within a higher one."""
NUM_FINE, EVERY = 14, 4
"""How many of the largest of these amounts are tried, and which of the smaller ones."""
LAST_PORTIONS = (0.9, 0.8, 0.6, 0.4, 0.2, 0.1, 0.0)
"""Parts of the memory to try if nothing fits; 0 is one micro-batch at a time."""

Estimate = tuple[float, Program]
"""An order with its estimate."""


class MemoryFit:
    """The peaks of a plan's orders against the memory limits.

    Args:
        costs: The priced plan.
        estimator: Its estimator.
    """

    def __init__(self, costs: Costs, estimator: Estimator) -> None:
        self._costs = costs
        self._estimator = estimator
        self._peak_of: dict[int, tuple[Program, Floats]] = {}
        self.is_limited = bool((costs.memory_limit < _everything(costs)).any())

    def peak(self, program: Program) -> Floats:
        """Over devices: the peak of an order."""
        if id(program) not in self._peak_of:
            lowered = lower(program, self._costs)
            # With the program, so that its id stays its own.
            self._peak_of[id(program)] = program, memory_use(lowered, self._costs).peak(lowered, self._costs)
        return self._peak_of[id(program)][1]

    def fits(self, program: Program, less: float = 0.0) -> bool:
        """Whether the order fits into the limits, or into limits that are `less` bytes lower.

        Most that do not are found without lowering: by what they keep.
        """
        if not self.is_limited:
            return True
        if id(program) not in self._peak_of and self._costs.over_bytes(self._least(program) + less).any():
            return False
        return not self._costs.over_bytes(self.peak(program) + less).any()

    def nearest(self, estimates: Sequence[Estimate], most: int) -> list[Estimate]:
        """Of orders that do not fit, those that keep least beyond the limit of a device; in the same order."""
        over = [float(self._costs.over_bytes(self._least(program)).max(initial=0.0)) for _, program in estimates]
        chosen = sorted(np.argsort(over, kind="stable")[:most].tolist())
        return [estimates[number] for number in chosen]

    def _least(self, program: Program) -> Floats:
        """Over devices: less than the peak of an order, without buffers."""
        return np.asarray(self._costs.static_bytes + self._estimator.held(self._estimator.order_of(program)))

    def first_fitting(self, estimates: Sequence[Estimate], most: int) -> list[Estimate]:
        """The first of some orders that fit; all of them if there are no limits."""
        if not self.is_limited:
            return list(estimates)
        found: list[Estimate] = []
        for item in estimates:
            if len(found) == most:
                break
            if self.fits(item[1]):
                found.append(item)
        return found


class LimitedGreedy:
    """List scheduling of a plan with as much memory as fits."""

    def __init__(self, greedy: Greedy, memory: MemoryFit, estimator: Estimator) -> None:
        self._greedy = greedy
        self._memory = memory
        self._estimator = estimator
        costs = greedy.costs
        again = ((costs.saved_bytes - costs.kept_bytes) * costs.recompute)[costs.replica_stage] * costs.share
        passing = np.zeros(costs.num_devices)
        np.maximum.at(passing, costs.backward_device, again)
        self._fixed = costs.static_bytes + passing
        # One micro-batch in all stages of a device: with less, it may not end.
        self._least = np.bincount(costs.backward_device, weights=greedy.kept, minlength=costs.num_devices)

    @property
    def free(self) -> Floats:
        """Over devices: bytes that parameters, and tensors that are recomputed for one backward, leave."""
        return np.maximum(self._greedy.costs.memory_limit - self._fixed, 0.0)

    def orders(self, ways: Sequence[Rules], rooms: Sequence[Floats] = ()) -> list[Estimate]:
        """Orders with the room that the limits leave, and with less.

        Args:
            ways: The rules; their own room is ignored.
            rooms: Amounts to try beside those between the least and all memory. They do not depend on limits that do
                not bind, so that an order that is found within a limit is also found within a higher one.
        """
        tried = {id(program): (seconds, program) for rules in ways for seconds, program in self._largest(rules, 1.0)}
        for room in (*(self.free - less for less in self.smaller()), *rooms):
            room = np.maximum(room, self._least)  # noqa: PLW2901
            for rules in ways:
                program = self._greedy.run(rules._replace(room=room))
                if program is not None and id(program) not in tried:
                    tried[id(program)] = self._estimator.seconds(program), program
        return list(tried.values())

    def smaller(self) -> list[float]:
        """By how many bytes limits are lower that leave the amounts of memory to try, the largest amounts first."""
        fullest, least = float(self.free.min()), float(self._least.max())
        if not 0 < least < fullest < np.inf:
            return []
        last = math.floor(math.log(fullest / least) / math.log(STEP))
        powers = [power for power in range(last, -1, -1) if last - power < NUM_FINE or power % EVERY == 0]
        return [fullest - least * STEP**power for power in powers]

    def last_orders(self, ways: Sequence[Rules]) -> list[Estimate]:
        """Orders by these rules with less and less memory, until one fits."""
        tried: list[Estimate] = []
        for portion in LAST_PORTIONS:
            for rules in ways:
                tried += self._largest(rules, portion)
            if any(self._memory.fits(program) for _, program in tried):
                break
        return tried

    def _largest(self, rules: Rules, portion: float) -> list[Estimate]:
        """Orders with more and more exactly the room that a part of the memory leaves."""
        limit = self._fixed + portion * self.free
        room = np.maximum(portion * self.free, self._least)
        found: list[Estimate] = []
        for _ in range(MAX_TRIALS):
            program = self._greedy.run(rules._replace(room=room))
            if program is None:
                break
            found.append((self._estimator.seconds(program), program))
            spare = np.where(np.isfinite(limit), limit - self._memory.peak(program), 0.0)
            if (spare >= 0).all() and (spare <= NEAR * room).all():
                break
            changed = np.maximum(room + spare, self._least)
            if np.array_equal(changed, room):
                break
            room = changed
        return found


def _everything(costs: Costs) -> Floats:
    """Over devices: more than any order needs, as if all tensors of all micro-batches were there at once."""
    flows, num = costs.flows, costs.num_devices
    saved = (costs.saved_bytes + costs.kept_bytes)[costs.replica_stage] * costs.share
    each = np.bincount(costs.forward_device, saved, num) + np.bincount(costs.backward_device, saved, num)
    each += np.bincount(flows.source, flows.num_bytes, num) + np.bincount(flows.target, flows.num_bytes, num)
    return np.asarray(costs.static_bytes + costs.more_at_step_bytes + costs.num_microbatches * each)
