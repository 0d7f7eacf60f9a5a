"""Programs in any order that can run: with micro-batches in turn they can still run, as fast and in as much memory."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.costs import Costs
from penstock.program.actions import Action, Kind
from penstock.program.lowering.lowering import lower
from penstock.program.lowering.message_places import place_messages
from penstock.program.makespan import makespan_s
from penstock.program.proof.memory import memory_use
from penstock.program.proof.proof import prove
from penstock.program.types import Program, program_from_actions
from penstock.schedules.ordering.microbatch_order import in_turn
from penstock.schedules.registry import SCHEDULES, schedule
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages, without_shared_interfaces
from tests.support.thoroughness import examples

Job = tuple[Kind, int, int]
"""Kind, place and micro-batch."""


def needs_of(costs: Costs, job: Job) -> set[Job]:
    """What must be done before: of neighbouring stages all places."""
    kind, place, microbatch = job
    stage = int(costs.replica_stage[place])

    def everywhere(what: Kind, number: int) -> set[Job]:
        inside = 0 <= number < costs.plan.num_stages
        return {(what, int(item), microbatch) for item in np.flatnonzero(costs.replica_stage == number) if inside}

    if kind == Kind.F:
        return everywhere(Kind.F, stage - 1)
    if kind == Kind.R:
        return everywhere(Kind.F, stage)
    if kind == Kind.I:
        before = Kind.R if costs.recompute[stage] else Kind.F
        return everywhere(before, stage) | everywhere(Kind.I, stage + 1)
    return {(Kind.I, place, microbatch)}


def any_order(costs: Costs, random: Random) -> Program:
    """A compute program in which jobs come in any order in which they can."""
    jobs = [
        (kind, place, microbatch)
        for place in range(costs.num_replicas)
        for microbatch in range(costs.num_microbatches)
        for kind in (Kind.F, Kind.R, Kind.I, Kind.W)
        if kind != Kind.R or costs.recompute[costs.replica_stage[place]]
    ]
    missing = {job: needs_of(costs, job) for job in jobs}
    waits: dict[Job, list[Job]] = {job: [] for job in jobs}
    for job, needs in missing.items():
        for needed in needs:
            waits[needed].append(job)
    ready = [job for job in jobs if not missing[job]]
    orders: list[list[Action]] = [[] for _ in range(costs.num_devices)]
    while ready:
        kind, place, microbatch = job = ready.pop(random.randrange(len(ready)))
        for waiting in waits[job]:
            missing[waiting].remove(job)
            if not missing[waiting]:
                ready.append(waiting)
        device = (costs.forward_device if kind == Kind.F else costs.backward_device)[place]
        orders[device].append(Action(kind, int(costs.replica_stage[place]), microbatch, ""))
    return program_from_actions(costs.plan, [item.name for item in costs.cluster.devices], orders)


@reaches(reordered=0.1)
@examples(150)
@given(cases(max_microbatches=5), st.randoms(use_true_random=False))
def test_any_order_in_turn(case: Case, random: Random) -> None:
    costs = case.costs
    program = any_order(costs, random)
    ordered = in_turn(program)
    reach("reordered", not ordered.same_actions(program))
    # Which buffers are there together depends on times, too; here each is there as long as it may be.
    placed = [place_messages(item, costs) for item in (program, ordered)]
    before_bytes, after_bytes = (memory_use(item, costs).peak(item, costs) for item in placed)
    assert (after_bytes <= before_bytes * (1 + 1e-12) + 1e-6).all()
    # Transfers that share an interface may take another time in another order.
    costs = without_shared_interfaces(case).costs
    before, after = (prove(lower(item, costs), costs, within_memory=False) for item in (program, ordered))
    assert makespan_s(after) <= makespan_s(before) * (1 + 1e-12)


@reaches(F=0.3, R=0.1, I=0.3, W=0.2)
@examples(100)
@given(cases(max_microbatches=9))
def test_every_schedule_takes_micro_batches_in_turn(case: Case) -> None:
    costs = case.costs
    for name in SCHEDULES:
        program = schedule(costs, name)
        for kinds in ((Kind.F,), (Kind.R,), (Kind.I, Kind.B), (Kind.W, Kind.B)):
            rows = np.flatnonzero(np.isin(program.kind, kinds))
            for key in {(int(program.device_of[row]), int(program.stage[row])) for row in rows}:
                mine = [row for row in rows if (program.device_of[row], program.stage[row]) == key]
                if kinds != (Kind.W, Kind.B) or len({int(program.kind[row]) for row in mine}) == 1:
                    assert (np.diff(program.microbatch[mine]) > 0).all()
                    reach(kinds[0].name, len(mine) > 1)


def test_weight_gradients_follow_their_input_gradients() -> None:
    costs = two_stages(num_microbatches=3).costs
    words = ["0F2", "0F0", "0B2", "0I0", "0F1", "0I1", "0W1", "0W0"]
    actions = [Action(Kind[word[1]], 0, int(word[2]), "") for word in words]
    found = in_turn(program_from_actions(costs.plan, ["d0"], [actions]))
    assert [str(action) for action in found.actions("d0")] == ["0F0", "0F1", "0B0", "0I1", "0F2", "0I2", "0W1", "0W2"]
