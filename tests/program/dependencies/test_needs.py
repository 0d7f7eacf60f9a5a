"""Data dependencies: by hand, against the transfers of the program, and against a plain definition by rows."""

import numpy as np
from hypothesis import given

import penstock
from penstock.plan.types import on
from penstock.program.actions import NONE, Action, Kind
from penstock.program.dependencies.needs import Ties, find_needs
from penstock.simulate.evaluation import Evaluation, evaluate_costs
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, equal_case, two_stages
from tests.support.thoroughness import examples


def needs_of(timeline: Timeline, ties: Ties | None = None) -> dict[str, list[str]]:
    name, graph = timeline.program.name, find_needs(timeline.program, timeline.cause, ties)
    return {
        name(action): [name(other) for other in graph.needs[graph.begin[action] : graph.begin[action + 1]].tolist()]
        for action in range(timeline.program.num_actions)
        if not Kind(int(timeline.program.kind[action])).is_recv
    }


def ties_of(evaluation: Evaluation) -> dict[int, tuple[int, ...]]:
    return {item.number: item.stages for item in evaluation.costs.reductions if item.is_tie}


def test_two_stages_by_hand() -> None:
    assert needs_of(evaluate_costs(two_stages(num_microbatches=1).costs).timeline) == {
        "0F0 on d0": [],
        "0SEND_F0@d1 on d0": ["0F0 on d0"],
        "0B0 on d0": ["1SEND_B0@d0 on d1", "0F0 on d0"],
        "0STEP on d0": ["0B0 on d0"],
        "1F0 on d1": ["0SEND_F0@d1 on d0"],
        "1B0 on d1": ["1F0 on d1"],
        "1SEND_B0@d0 on d1": ["1B0 on d1"],
        "1STEP on d1": ["1B0 on d1"],
    }


def test_a_remote_backward_needs_saved_tensors() -> None:
    remote = ((on("d0"), on("d1")), (on("d1"), on("d1")))
    needs = needs_of(evaluate_costs(two_stages(num_microbatches=1, groups=remote).costs).timeline)
    # The backward of stage 1 is on the same device; the saved tensors of stage 0 come from d0.
    assert needs["0B0 on d1"] == ["1B0 on d1", "0SEND_S0@d1 on d0"]
    assert needs["0SEND_S0@d1 on d0"] == ["0F0 on d0"]
    assert needs["0SEND_P@d0 on d1"] == ["0STEP on d1"]
    needs = needs_of(evaluate_costs(two_stages(num_microbatches=1, groups=remote, recompute=True).costs).timeline)
    assert needs["0R0 on d1"] == ["0SEND_S0@d1 on d0"]
    assert needs["0B0 on d1"] == ["1B0 on d1", "0R0 on d1"]
    assert needs["1R0 on d1"] == ["1F0 on d1"]


def test_needs_of_other_stages_come_first() -> None:
    remote = ((on("d0"), on("d1")), (on("d1"), on("d0")))
    needs = needs_of(evaluate_costs(two_stages(num_microbatches=1, groups=remote).costs).timeline)
    assert needs["0B0 on d1"] == ["1SEND_B0@d1 on d0", "0SEND_S0@d1 on d0"]


def test_a_device_with_two_stages_needs_no_message() -> None:
    needs = needs_of(evaluate_costs(equal_case([0, 0], 1, "gpipe").costs).timeline)
    assert needs["1F0 on d0"] == ["0F0 on d0"]
    assert needs["0B0 on d0"] == ["1B0 on d0", "0F0 on d0"]


def test_steps_of_replicas_need_their_reduction() -> None:
    group = on("d0", "d1")
    case = two_stages(num_microbatches=2, groups=((group, group), (on("d2"), on("d2"))), num_devices=3)
    needs = needs_of(evaluate_costs(case.costs).timeline)
    assert needs["0REDUCE_GRAD on d1"] == ["0B1 on d1"]
    assert needs["0STEP on d1"] == ["0REDUCE_GRAD on d1", "0B1 on d1"]


@reaches(messages=0.02, reductions=0.02, gathers=0.02, ties=0.01, saved=0.02, recompute=0.05, local=0.05)
@examples(100)
@given(cases())
def test_the_graph_is_that_of_the_program(case: Case) -> None:
    evaluation = evaluate_costs(case.costs)
    timeline, program, dependencies = evaluation.timeline, evaluation.program, evaluation.proof.dependencies
    ties = ties_of(evaluation)
    graph = find_needs(timeline.program, timeline.cause, ties)
    later = np.repeat(np.arange(program.num_actions), np.diff(graph.begin))
    edges = set(zip(graph.needs.tolist(), later.tolist(), strict=True))
    assert len(edges) == len(later)
    kinds = [Kind(kind) for kind in program.kind.tolist()]
    assert edges == plain_edges(evaluation, ties)
    # The consumers of every message and reduction are those that the simulator waits for.
    for transfer in range(dependencies.num_transfers):
        send = int(dependencies.send[transfer])
        first, last = dependencies.consumers.begin[transfer : transfer + 2].tolist()
        consumers = dependencies.consumers.values[first:last]
        for consumer in consumers.tolist():
            if kinds[send].is_send:
                assert (send, consumer) in edges
            else:
                same = [other for other, user in edges if user == consumer and kinds[other].is_reduction]
                assert [dependencies.transfer_of[other] for other in same].count(transfer) == 1
    ends = timeline.end_s[graph.needs]
    assert (ends <= timeline.start_s[later] + 1e-9 * timeline.iteration_s).all()
    reach("messages", any(kind.is_send for kind in kinds))
    reach("reductions", Kind.REDUCE_GRAD in kinds)
    reach("gathers", Kind.GATHER_P in kinds)
    reach("ties", Kind.REDUCE_TIE in kinds)
    reach("saved", Kind.SEND_S in kinds)
    reach("recompute", Kind.R in kinds)
    reach("local", any(kinds[earlier] == kinds[user] == Kind.F for earlier, user in edges))


def plain_edges(evaluation: Evaluation, ties: Ties) -> set[tuple[int, int]]:
    """All pairs of actions, tested one by one."""
    program = evaluation.program
    actions = [
        (index, program.action(index), program.devices[int(program.device_of[index])])
        for index in range(program.num_actions)
    ]
    shown = [item for item in actions if not item[1].kind.is_recv]
    edges = set()
    for later in shown:
        needed = {earlier[0] for earlier in shown if is_needed(evaluation, earlier, later, ties)}
        kinds = {program.action(index).kind for index in needed}
        if later[1].kind in (Kind.I, Kind.B) and Kind.R in kinds:  # the recomputation replaces what the forward saved
            needed = {index for index in needed if program.action(index).kind not in (Kind.F, Kind.SEND_S)}
        if later[1].kind in (Kind.STEP, Kind.REDUCE_GRAD, Kind.REDUCE_TIE):  # only the last gradient of each stage
            gradients = {index for index in needed if program.action(index).kind in (Kind.W, Kind.B)}
            last = {program.action(index).stage: index for index in sorted(gradients)}
            needed = needed - gradients | set(last.values())
        edges |= {(index, later[0]) for index in needed}
    return edges


def is_needed(
    evaluation: Evaluation, earlier: tuple[int, Action, str], later: tuple[int, Action, str], ties: Ties
) -> bool:
    (_, one, source), (_, other, device) = earlier, later
    backward = (Kind.I, Kind.B)
    step = one.stage - other.stage
    is_local, is_arriving = source == device, one.peer == device

    def have_rows_in_common(one_side: str, other_side: str) -> bool:
        first = rows(evaluation, one.stage, one_side, device)
        second = rows(evaluation, other.stage, other_side, device)
        return min(first[1], second[1]) - max(first[0], second[0]) > 1e-8

    if one.kind in (Kind.W, Kind.B) and other.kind in (Kind.STEP, Kind.REDUCE_GRAD):
        return is_local and step == 0
    if one.kind in (Kind.W, Kind.B) and other.kind == Kind.REDUCE_TIE:
        return is_local and one.stage in ties[other.stage]
    if other.kind == Kind.STEP and one.kind.is_reduction:
        return is_local and (step == 0 if one.kind == Kind.REDUCE_GRAD else other.stage in ties[one.stage])
    if one.microbatch != other.microbatch:
        return False
    match other.kind:
        case Kind.F:
            if one.kind == Kind.F:
                return step == -1 and is_local and have_rows_in_common("forward", "forward")
            return one.kind == Kind.SEND_F and step == -1 and is_arriving
        case Kind.R | Kind.I | Kind.B:
            if one.kind == Kind.F:
                return step == 0 and is_local and have_rows_in_common("forward", "backward")
            if one.kind == Kind.SEND_S:
                return step == 0 and is_arriving
            if other.kind == Kind.R:
                return False
            if one.kind in backward:
                return step == 1 and is_local and have_rows_in_common("backward", "backward")
            if one.kind == Kind.R:
                return step == 0 and is_local
            return one.kind == Kind.SEND_B and step == 1 and is_arriving
        case Kind.W:
            return one.kind == Kind.I and step == 0 and is_local
        case Kind.SEND_F | Kind.SEND_S:
            return one.kind == Kind.F and step == 0 and is_local
        case Kind.SEND_B:
            return one.kind in backward and step == 0 and is_local
        case Kind.SEND_P | Kind.GATHER_P:
            return one.kind == Kind.STEP and step == 0 and is_local
    return False


def rows(evaluation: Evaluation, stage: int, side: str, device: str) -> tuple[float, float]:
    """The range of rows that a device has of a stage; empty where it has none."""
    begin = 0.0
    for replica in getattr(evaluation.costs.plan.stages[stage], side):
        if replica.device == device:
            return begin, begin + replica.share
        begin += replica.share
    return 0.0, 0.0


def test_without_ties_a_step_needs_what_caused_its_start() -> None:
    evaluation = _tied()
    timeline, program = evaluation.timeline, evaluation.program
    known, unknown = needs_of(timeline, ties_of(evaluation)), needs_of(timeline)
    steps = [action for action in range(program.num_actions) if program.kind[action] == Kind.STEP]
    assert any("REDUCE_TIE" in other for action in steps for other in known[program.name(action)])
    for action in steps:
        name, cause = program.name(action), int(timeline.cause[action])
        awaited = [program.name(cause)] if cause != NONE and program.kind[cause] == Kind.REDUCE_TIE else []
        assert [other for other in unknown[name] if "REDUCE_TIE" in other] == awaited


def _tied() -> Evaluation:
    profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=2)
    cluster = penstock.load_cluster("2 x T4 @ 1 GB/s")
    plan = penstock.plan(profile, cluster, 2, planner="balanced", schedule="1f1b")
    return penstock.evaluate(plan, profile, cluster)
