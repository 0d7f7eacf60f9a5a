"""Messages in one order over all devices: the same times as before, and no more memory."""

import math
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.costs import Costs
from penstock.program.actions import is_compute, is_recv
from penstock.program.dependencies import find_dependencies, find_replica_syncs
from penstock.program.engine.execution import Run, count_transfers_needed, execute
from penstock.program.job_table import find_jobs
from penstock.program.lowering.message_order import find_order_plainly, holds_sends, order_messages
from penstock.program.lowering.message_order_kernel import find_order
from penstock.program.lowering.message_places import place_messages
from penstock.program.proof.memory import memory_changes, memory_use
from penstock.program.seconds import durations
from penstock.program.types import Program
from penstock.schedules.registry import schedule
from penstock.simulate.reference import simulate_plainly
from tests.support.paths import REPOSITORY
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, reach_features
from tests.support.thoroughness import examples


def _find_order(program: Program, costs: Costs, stages: set[int]) -> tuple[np.ndarray, np.ndarray, Run]:
    """The order by the plain function and by the compiled one, and the execution that it follows."""
    jobs = find_jobs(program, costs)
    dependencies = find_dependencies(program, costs, jobs)
    run = execute(program, dependencies, costs, durations(program, costs, jobs.replica))
    syncs = find_replica_syncs(program, stages)
    waits = count_transfers_needed(program, dependencies)
    arguments = (program.offsets, program.device_of, dependencies, syncs)
    plain = find_order_plainly(*arguments, waits.copy(), run.end)
    return plain, find_order(*arguments, waits.copy(), run.end), run


@reaches(moved=0.3, replicated=0.1, remote=0.1, shared=0.1, tied=0.05, recompute=0.1, split=0.1)
@examples(300)
@given(cases(max_microbatches=8))
def test_simulated_times_stay_the_same(case: Case) -> None:
    costs = case.costs
    placed = place_messages(schedule(costs), costs)
    order, _, _ = _find_order(placed, costs, set())
    ordered = order_messages(placed, costs)
    for before, after in zip(simulate_plainly(placed, costs), simulate_plainly(ordered, costs), strict=True):
        assert np.array_equal(before[order], after)
    reach("moved", not ordered.same_actions(placed))
    reach_features(case)


@reaches(holds=0.03, lower=0.05, several_devices=0.4, remote=0.1)
@examples(300)
@given(cases(max_microbatches=8))
def test_receive_buffers_never_live_longer(case: Case) -> None:
    costs = case.costs
    placed = place_messages(schedule(costs), costs)
    ordered = order_messages(placed, costs)
    order, _, run = _find_order(placed, costs, set())
    for device, (first, stop) in enumerate(zip(placed.offsets[:-1], placed.offsets[1:], strict=True)):
        # Number of compute actions before each receive, in both programs.
        before, after = (
            np.cumsum(is_compute(program.kind[first:stop]))[is_recv(program.kind[first:stop])]
            for program in (placed, ordered)
        )
        by_old = np.argsort(order[first:stop][is_recv(ordered.kind[first:stop])], kind="stable")
        assert (after[by_old] >= before).all(), device
    peaks = [memory_use(program, costs).peak(program, costs) for program in (placed, ordered)]
    dependencies = find_dependencies(placed, costs, find_jobs(placed, costs))
    if holds_sends(dependencies, run.end):
        # A sender keeps its tensor until the receiver has a buffer. The program before did not count that.
        reach("holds")
        changes = [memory_changes(program, costs, find_jobs(program, costs)) for program in (placed, ordered)]
        assert math.fsum(changes[0].saved_before) == math.fsum(changes[1].saved_before)
    else:
        assert (peaks[1] <= peaks[0] * (1 + 1e-12)).all()
        reach("lower", (peaks[1] < peaks[0]).any())
    reach_features(case)


@reaches(synced=0.2, blocked=0.01, several_devices=0.4)
@examples(300)
@given(cases(), st.sets(st.integers(0, 5)))
def test_the_compiled_order_is_the_plain_one(case: Case, stages: set[int]) -> None:
    costs = case.costs
    placed = place_messages(schedule(costs), costs)
    plain, compiled, _ = _find_order(placed, costs, stages)
    assert plain.tolist() == compiled.tolist()
    reach("synced", len(find_replica_syncs(placed, stages).size))
    reach("blocked", plain.min(initial=0) < 0)
    reach_features(case)


def test_a_small_program_is_lowered_and_proved_without_loading_numba() -> None:
    script = """
import sys
from penstock.program.lowering import lower
from penstock.program.proof import prove
from penstock.schedules import schedule
from tests.support.strategies import two_stages
case = two_stages(num_microbatches=4, schedule_name="gpipe")
costs = case.costs
prove(lower(schedule(costs), costs), costs)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True)
