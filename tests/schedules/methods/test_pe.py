"""PE: its picture, its limit, its bound, and that nobody waits without need."""

import re
from importlib import import_module
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Origin, Plan, Replica, Stage
from penstock.program.actions import Kind
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.schedules.methods.pe import most_in_flight, pe
from penstock.simulate.evaluation import Evaluation, evaluate_costs
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, clusters, equal_case, profiles, reach_features, two_stages
from tests.support.thoroughness import examples


def run(costs: Costs) -> Evaluation:
    return evaluate_costs(costs, program=pe(costs), within_memory=False)


def timed(evaluation: Evaluation, device: str) -> list[tuple[float, str]]:
    """(start, job) of a device's compute actions."""
    program, timeline = evaluation.program, evaluation.timeline
    number = program.devices.index(device)
    places = range(int(program.offsets[number]), int(program.offsets[number + 1]))
    actions = [(float(timeline.start_s[place]), program.action(place)) for place in places]
    return [(start, f"{action.kind.name}{action.microbatch}") for start, action in actions if action.kind < Kind.STEP]


def test_the_picture_is_the_timeline() -> None:
    evaluation = run(equal_case([0, 1, 2], 4, "gpipe").costs)
    rows = re.findall(
        r"^ +device (\d) +((?:(?:[FB]\d|\.) *)+)",
        import_module("penstock.schedules.methods.pe").__doc__ or "",
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["0", "1", "2"]
    for device, text in rows:
        cells = text.split()
        expected = [(float(column), cell) for column, cell in enumerate(cells) if cell != "."]
        assert timed(evaluation, f"d{device}") == expected
    assert evaluation.timeline.iteration_s == 12.0


def test_two_stages_by_hand() -> None:
    # F = 2, B = 2; a transfer takes 4 bytes / 2 + 1 s = 3 s and holds its link for 2 s. d0 may have 4 in flight, plus
    # (1 + 1) / 4 rounded up = 1 for latency: all 3 forwards go at once. They arrive at 5, 7 and 9. d1 may have 1 in
    # flight: F0 5-7, B0 7-9, F1 9-11, B1 11-13, F2 13-15, B2 15-17. Gradients are back 3 s after each B.
    case = two_stages(num_microbatches=3)
    assert most_in_flight(case.costs) == [3, 1]
    evaluation = run(case.costs)
    assert timed(evaluation, "d0") == [(0, "F0"), (2, "F1"), (4, "F2"), (12, "B0"), (16, "B1"), (20, "B2")]
    assert timed(evaluation, "d1") == [(5, "F0"), (7, "B0"), (9, "F1"), (11, "B1"), (13, "F2"), (15, "B2")]
    assert evaluation.timeline.iteration_s == 22.0


def test_limits() -> None:
    # One for each stage and for each direction of each channel to the end; for latency, one more for each 4 s that its
    # 2 s last (the slowest stage takes 4 s).
    assert most_in_flight(equal_case([0, 1, 2, 3], 100, "gpipe").costs) == [10, 7, 4, 1]
    assert most_in_flight(equal_case([0, 1, 2, 3], 4, "gpipe").costs) == [4, 4, 4, 1]
    assert most_in_flight(two_stages(num_microbatches=50).costs) == [5, 1]
    # Latency without work to compare it with: as many as there are.
    idle = equal_case([0, 1], 9, "gpipe", forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0)
    assert most_in_flight(idle.costs) == [4, 1]
    wire = msgspec.structs.replace(idle.cluster.between, latency_s=1.0)
    host = msgspec.structs.replace(idle.cluster.hosts[0], inside=wire)
    far = msgspec.structs.replace(idle.cluster, hosts=(host,))
    plan = msgspec.structs.replace(idle.plan, cluster=Origin(name=far.name, digest=far.digest))
    assert most_in_flight(price(plan, idle.profile, far)) == [9, 1]


def test_unequal_stages_do_not_hold_up_each_other() -> None:
    # A quick stage before a slow one, which never waits: first forward 1, 4 * 6, last backward 1.
    case = equal_case([0, 1], 4, "gpipe")
    units = list(case.profile.units)
    slow = msgspec.structs.replace(units[1].times[0], forward_s=2.0, input_grad_s=2.0, weight_grad_s=2.0)
    units[1] = msgspec.structs.replace(units[1], times=(slow,))
    profile = msgspec.structs.replace(case.profile, units=tuple(units))
    plan = msgspec.structs.replace(case.plan, profile=Origin(name=profile.name, digest=profile.digest))
    assert run(price(plan, profile, case.cluster)).timeline.iteration_s == 1 + 4 * 6 + 1


@reaches(at_the_limit=0.1)
@examples(60)
@given(cases(max_microbatches=9))
def test_any_case_is_proved(case: Case) -> None:
    costs = case.costs
    program = pe(costs)
    assert program.same_actions(pe(case.costs))
    prove(lower(program, costs), costs, within_memory=False)
    flying = np.zeros(case.plan.num_stages)
    limits = most_in_flight(costs)
    for device in costs.plan.devices:
        flying[:] = 0
        for action in program.actions(device):
            flying[action.stage] += {Kind.F: 1, Kind.I: -1, Kind.B: -1}.get(action.kind, 0)
            if not case.plan.stages[action.stage].has_remote_backward:
                assert flying[action.stage] <= limits[action.stage]
                reach("at_the_limit", flying[action.stage] == limits[action.stage] < costs.num_microbatches)


@st.composite
def replicated(draw: st.DrawFn) -> Case:
    """Disjoint groups in a row; no ties and no optimizer step, which the bound does not know."""
    profile, cluster = draw(profiles(overheads=True)), draw(clusters(max_devices=7))
    units = tuple(
        msgspec.structs.replace(unit, times=tuple(msgspec.structs.replace(times, step_s=0.0) for times in unit.times))
        for unit in profile.units
    )
    profile = msgspec.structs.replace(profile, units=units, ties=())
    hosts = tuple(msgspec.structs.replace(host, interface_bandwidth=None) for host in cluster.hosts)
    cluster = msgspec.structs.replace(cluster, hosts=hosts)
    names = list(draw(st.permutations([device.name for device in cluster.devices])))
    num_stages = draw(st.integers(1, min(len(names), profile.num_units)))
    cuts = sorted(draw(st.permutations(range(1, profile.num_units)))[: num_stages - 1])
    bounds = sorted(draw(st.permutations(range(1, len(names))))[: num_stages - 1])
    stages = []
    for (start, stop), (first, last) in zip(
        pairwise([0, *cuts, profile.num_units]), pairwise([0, *bounds, len(names)]), strict=True
    ):
        weights = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(first, last)]
        group = tuple(
            Replica(name, weight / sum(weights)) for name, weight in zip(names[first:last], weights, strict=True)
        )
        stages.append(Stage(start=start, stop=stop, forward=group, backward=group, recompute=draw(st.booleans())))
    plan = Plan(
        planner="random",
        schedule="gpipe",
        split_backward=draw(st.booleans()),
        num_microbatches=draw(st.integers(1, 12)),
        micro_batch_size=4,
        profile=Origin(name=profile.name, digest=profile.digest),
        cluster=Origin(name=cluster.name, digest=cluster.digest),
        stages=tuple(stages),
    )
    return Case(profile, cluster, plan)


def bound(costs: Costs) -> float:
    """(M + 4 S - 4) C plus the largest all-reduce."""
    again = np.where(costs.recompute[costs.replica_stage], costs.recompute_s, 0.0)
    longest = float((costs.forward_s + again + costs.input_grad_s + costs.weight_grad_s).max())
    flows = costs.flows
    ends = flows.source, flows.target
    seconds = costs.cluster.latency_s[ends] + flows.num_bytes / costs.cluster.bandwidth[ends]
    for stage in range(costs.plan.num_stages - 1):
        there, back = (
            (flows.what == what) & (costs.replica_stage[place] == stage)
            for what, place in ((ACTIVATION, flows.source_replica), (GRADIENT, flows.target_replica))
        )
        longest = max(longest, float(seconds[there].max() + seconds[back].max()))
    reduce_s = max((item.ring.occupancy_s + item.ring.latency_s for item in costs.reductions), default=0.0)
    return (costs.num_microbatches + 4 * costs.plan.num_stages - 4) * longest + reduce_s


@reaches(close=0.02, several_stages=0.05, replicated=0.1, reduced=0.1)
@examples(150)
@given(replicated())
def test_the_bound(case: Case) -> None:
    costs = case.costs
    seconds, most = run(costs).timeline.iteration_s, bound(costs)
    assert seconds <= most * (1 + 1e-12)
    reach_features(case)
    reach("close", seconds > 0.5 * most and case.plan.num_stages > 1)
    reach("reduced", any(item.ring.occupancy_s > 0 for item in costs.reductions))


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_one_device_never_waits(stages: int) -> None:
    evaluation = run(equal_case([0] * stages, 5, "gpipe", forward_s=1.0, input_grad_s=0.5, weight_grad_s=0.25).costs)
    assert evaluation.timeline.iteration_s == 5 * stages * 1.75
