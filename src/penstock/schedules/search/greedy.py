"""List scheduling: every device runs the best pass that is ready, with real costs, real delays and bounded memory.

An idle device runs, in this order of preference: an input gradient that is ready (the oldest micro-batch; it is on the
critical path, and frees memory); a forward that is ready and has room (the latest stage); a weight gradient that is
due (the oldest), unless something better arrives before `patience` of it would be done; else it waits. Room is
the memory for saved tensors on a device; a forward leaves room for one micro-batch in each later stage of its device,
so that memory cannot fill up with micro-batches that need more to proceed.

Cost: O(jobs (stages per device + log devices)).
"""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats
from penstock.plan.pricing import Costs
from penstock.program import Program, program_from_arrays
from penstock.schedules.search.pass_graph import make_pass_graph


class Rules(NamedTuple):
    """The parameters of list scheduling."""

    split: bool
    """Whether backwards are split."""
    room: Floats
    """Bytes of saved tensors that each device may keep; the first micro-batch always passes."""
    patience: float = 0.5
    later_first: bool = True
    """Prefer forwards of later stages; else of earlier ones."""


class Greedy:
    """List scheduling of one plan."""

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._graph = make_pass_graph(costs)
        self._runs: list[_Run] = []

    @property
    def kept(self) -> Floats:
        """Over replicas: bytes that a forward keeps for its backward."""
        return self._graph.kept

    def run(self, rules: Rules) -> Program | None:
        """The program by these rules; None if they leave too little room to end."""
        timed = self.timed(rules)
        return timed[0] if timed else None

    def timed(self, rules: Rules) -> tuple[Program, float] | None:
        """The program and its time by the scheduler's own clock, which leaves out link queues and reductions.

        Rules that differ only in room that is not needed give the same program, which is scheduled once.
        """
        for earlier in self._runs:
            if earlier.is_for(rules):
                return earlier.result
        result, needed = self._schedule(rules)
        self._runs.append(_Run(rules, needed, result))
        return result

    def _schedule(self, rules: Rules) -> tuple[tuple[Program, float] | None, Floats]:
        from penstock.schedules.search.greedy_kernel import run_greedy

        costs = self.costs
        rank = costs.replica_stage.astype(np.float64) * (1.0 if rules.later_first else -1.0)
        counts, kind, replica, microbatch, seconds, complete, needed = run_greedy(
            self._graph, rules.room, rank, rules.split, rules.patience
        )
        if not complete:
            return None, needed
        names = [device.name for device in costs.cluster.devices]
        program = program_from_arrays(costs.plan, names, counts, kind, costs.replica_stage[replica], microbatch)
        return (program, float(seconds)), needed


class _Run(NamedTuple):
    """A result, and the least room that gives it."""

    rules: Rules
    needed: Floats
    result: tuple[Program, float] | None

    def is_for(self, rules: Rules) -> bool:
        return (
            self.rules.split == rules.split
            and self.rules.patience == rules.patience
            and self.rules.later_first == rules.later_first
            and bool((self.needed <= rules.room).all())
        )
