"""Explanations of plans: sentences derived by hand, and sums on random cases."""

import dataclasses
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Link, Wire
from penstock.plan.types import Origin, Plan, Replica, Stage, on
from penstock.planners.bounds.bound import Bound, BoundPart, binding_part, gap_to_bound, lower_bound
from penstock.planners.methods.balanced import balanced
from penstock.planners.problem import Problem
from penstock.planners.studies.alternatives import Alternative
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.report.analysis.bottleneck import (
    EQUAL_LOAD,
    FULL_LOAD,
    MAIN_SHARE,
    PathLocation,
    bottleneck_sentences,
    find_bottleneck,
    path_seconds,
)
from penstock.report.analysis.device_time import TimeUse, WaitSum, time_use
from penstock.report.text.explanation import alternative_sentence, bound_sentence, explain
from penstock.report.text.placement import format_group, placement_sentences
from penstock.simulate.evaluation import evaluate, evaluate_costs
from penstock.timeline.build import build_timeline
from penstock.timeline.summary import critical_path, device_uses, waits
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, equal_case, two_stages
from tests.support.thoroughness import examples


def test_two_stages_by_hand() -> None:
    # The timeline is derived in timeline/test_causes.py: 18 s; d0 works 0-4, 12-14 and 16-18; d1 works 5-13. The
    # chain: F on d0 0-2, there 2-5, F B F B on d1 5-13, back 13-16, B on d0 16-18.
    case = two_stages(num_microbatches=2)
    assert explain(evaluate_costs(case.costs), case.profile) == [
        "d0 runs a; d1 runs b. Every backward runs on the device of its forward.",
        "Use of the devices' time: 22.2 % forward, 22.2 % backward, 55.6 % idle.",
        (
            "Longest waits: 27.8 % for gradients (of which transfers 13.9 %); 13.9 % for activations (of which "
            "transfers 8.3 %); 13.9 % idle after finishing, waiting for the iteration to end."
        ),
        (
            "No single device or link is the bottleneck: the critical path is 66.7 % computing on 2 devices and 33.3 % "
            "in transfers on 2 links; its largest part is 44.4 % computing on d1."
        ),
    ]


def test_a_slow_device_is_the_bottleneck() -> None:
    # d1 works 4 x 30 of 123 s, after one forward of d0 (1 s) and before one backward of it (2 s).
    profile, cluster = profile_of([(1, 1, 1), (10, 10, 10)]), cluster_of([1.0, 1.0])
    result = evaluate(balanced(Problem(profile, cluster, 4)), profile, cluster)
    assert result.timeline.iteration_s == pytest.approx(123, rel=1e-6)
    assert explain(result, profile)[-1] == (
        "The bottleneck is d1: the critical path is 97.6 % computing on d1 and 2.4 % computing on d0. d1 is busy for "
        "97.6 % of the iteration, from 1.00 s after its start to 2.00 s before its end."
    )


def _on_groups(profile: Profile, cluster: Cluster, num_microbatches: int, stages: list[Stage]) -> Plan:
    plan = Problem(profile, cluster, num_microbatches).plan("test", [0, profile.num_units], [on("d0")])
    return msgspec.structs.replace(plan, stages=tuple(stages))


def test_an_all_reduce_is_the_bottleneck() -> None:
    # Half a row takes 1.5 s; each of the two sends 2 (r - 1) / r x 100 bytes at 1 byte a second: 100 s.
    profile, cluster = equal_profile(1, parameter_bytes=100), one_host(2)
    group = on("d0", "d1")
    plan = _on_groups(profile, cluster, 1, [Stage(start=0, stop=1, forward=group, backward=group)])
    result = evaluate(plan, profile, cluster)
    assert result.timeline.iteration_s == 101.5
    sentences = explain(result, profile)
    assert sentences[0].startswith("Each of d0, d1 runs the whole model on its share of every micro-batch.")
    assert sentences[2] == ("Longest waits: 98.5 % for all-reduces of a group's gradients (of which transfers 98.5 %).")
    assert sentences[3].startswith("The bottleneck is the all-reduce of gradients: ")
    assert "98.5 % in all-reduces and 1.5 % computing on d" in sentences[3]


def test_a_link_is_the_bottleneck() -> None:
    profile, cluster = equal_profile(2, cut_bytes=100), one_host(2)
    result = evaluate(balanced(Problem(profile, cluster, 1)), profile, cluster)
    # F 1, there 100, F and B 3, back 100, B 2.
    assert path_seconds(result.timeline) == {
        PathLocation(source="d0", target="d1"): 100.0,
        PathLocation(source="d1", target="d0"): 100.0,
        PathLocation(device="d0"): 3.0,
        PathLocation(device="d1"): 3.0,
    }
    one_way = equal_profile(3, cut_bytes=0)
    wide = msgspec.structs.replace(
        one_way.units[0], sizes=(msgspec.structs.replace(one_way.units[0].sizes[0], cut_bytes=500),)
    )
    profile = msgspec.structs.replace(one_way, units=(wide, *one_way.units[1:]))
    groups = [("d0", "d1"), ("d1", "d1"), ("d0", "d0")]
    stages = [
        Stage(start=unit, stop=unit + 1, forward=on(forward), backward=on(backward))
        for unit, (forward, backward) in enumerate(groups)
    ]
    result = evaluate(_on_groups(profile, cluster, 1, stages), profile, cluster)
    sentences = explain(result, profile)
    assert sentences[0] == "d0 runs u0 and u2; d1 runs u1."
    assert sentences[1].startswith("The backward of u0 runs on d1 without any transfer. ")
    # 500 s on the link from d0 to d1 once: u0's backward is where u1's is.
    assert "The bottleneck is the link from d0 to d1: " in sentences[-1]


def test_remote_backwards_name_their_transfers() -> None:
    remote = ((on("d0"), on("d1")), (on("d1"), on("d1")))
    case = two_stages(num_microbatches=2, groups=remote)
    first, second = placement_sentences(case.costs, case.profile)
    assert first == "d0 runs a; d1 runs b."
    assert second == (
        "The backward of a runs on d1, which receives 8 B of saved tensors per micro-batch. "
        "Every other backward runs on the device of its forward."
    )
    # Recomputing, only the input (3 bytes) goes over.
    case = two_stages(num_microbatches=2, groups=remote, recompute=True)
    sentences = placement_sentences(case.costs, case.profile)
    assert ", which receives 3 B of saved tensors per micro-batch." in sentences[1]
    assert sentences[2] == "Every stage keeps only its input and recomputes its forward before its backward."
    both = ((on("d0"), on("d1")), (on("d1"), on("d0")))
    case = two_stages(num_microbatches=1, groups=both)
    assert placement_sentences(case.costs, case.profile)[1] == (
        "The backward of a runs on d1, which receives 8 B of saved tensors per micro-batch; the backward of b runs on "
        "d0, which receives 8 B of saved tensors per micro-batch; 16 B per micro-batch in total. "
        "Every other backward runs on the device of its forward."
    )


def test_recomputed_parts_are_named() -> None:
    case = equal_case([0, 1, 2], 1, "gpipe")
    stages = tuple(
        msgspec.structs.replace(stage, recompute=number < 2) for number, stage in enumerate(case.plan.stages)
    )
    case = Case(case.profile, case.cluster, msgspec.structs.replace(case.plan, stages=stages))
    assert placement_sentences(case.costs, case.profile)[1] == (
        "Recomputed from their input before the backward: u0 .. u1."
    )
    assert "recomputation" in explain(evaluate_costs(case.costs), case.profile)[2]


def test_many_devices_are_elided() -> None:
    case = equal_case(list(range(64)), 2, "1f1b")
    sentences = explain(evaluate_costs(case.costs), case.profile)
    assert sentences[0] == (
        "d0 runs u0; d1 runs u1; d2 runs u2; 60 more groups of devices; d63 runs u63. "
        "Every backward runs on the device of its forward."
    )
    assert len(sentences) <= 5
    assert max(map(len, sentences)) < 400
    assert format_group(on(*(f"d{number}" for number in range(1024)))) == "d0 .. d1023 (1024 devices)"
    shares = (Replica("a", 0.5), Replica("b\n", 0.25), Replica("c", 0.25))
    assert format_group(shares) == "a (50.0 %), b\\n (25.0 %), c (25.0 %)"


def test_one_device_and_no_time() -> None:
    case = equal_case([0], 1, "gpipe", forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0)
    bound = lower_bound(case.profile, case.cluster, 1)
    sentences = explain(evaluate_costs(case.costs), case.profile, alternative=Alternative("x + y", 1.0), bound=bound)
    assert sentences[:3] == [
        "d0 runs the whole model. Every backward runs on the device of its forward.",
        "No action takes any time.",
        "Best plan of the other planners, each with its own schedule (penstock compare runs all): x + y, 1.00 s.",
    ]
    assert sentences[3].endswith("; the gap is not defined.")


def test_the_alternative_may_be_better() -> None:
    assert alternative_sentence(Alternative("spp + pe", 3.0), 2.0).endswith("3.00 s, 50.0 % longer than this plan.")
    assert alternative_sentence(Alternative("spp + pe", 1.0), 2.0).endswith("1.00 s, 50.0 % shorter than this plan.")
    assert alternative_sentence(Alternative("spp + pe", 2.0), 2.0).endswith("2.00 s, the same time.")
    disabled = alternative_sentence(Alternative("spp + pe", 1.0, is_allowed=False), 2.0)
    assert disabled.endswith("1.00 s (uses options disabled for this plan), 50.0 % shorter than this plan.")


def test_the_bound_names_its_part() -> None:
    bound = Bound(4.0, "because", (BoundPart("chain", 3.0, "one by one"), BoundPart("work", 4.0, "all work")))
    assert binding_part(bound).name == "work"
    assert gap_to_bound(bound, 5.0) == 0.25
    assert gap_to_bound(Bound(0.0, "", bound.parts), 5.0) is None
    assert bound_sentence(bound, 5.0) == (
        "Lower bound: no plan can be faster than 4.00 s (work bound: all work); this plan is 25.0 % above."
    )


def test_time_use_by_hand() -> None:
    assert time_use(evaluate_costs(two_stages(num_microbatches=2).costs).timeline) == TimeUse(
        total_s=36.0,
        work_s={Kind.F: 8.0, Kind.B: 8.0},
        waits=(WaitSum(Kind.SEND_B, 10.0, 5.0), WaitSum(Kind.SEND_F, 5.0, 3.0)),
        after_s=5.0,
    )


def test_a_late_start_behind_a_job_is_no_transfer() -> None:
    # Measured: the second forward begins half a second after the first, which is its cause, has ended.
    timeline = evaluate_costs(equal_case([0], 2, "gpipe").costs).timeline
    late = np.array([0.0, 0.5, 0.5, 0.5, 0.5])
    measured = dataclasses.replace(timeline, start_s=timeline.start_s + late, end_s=timeline.end_s + late)
    assert time_use(measured).waits == (WaitSum(None, 0.5, 0.0),)


@reaches(waits=0.05, moving=0.05, after=0.05, reduced=0.05, path_moves=0.05)
@examples(150)
@given(cases())
def test_sums(case: Case) -> None:
    evaluation = evaluate_costs(case.costs)
    timeline = evaluation.timeline
    close = partial(pytest.approx, rel=1e-9, abs=1e-9 * timeline.iteration_s)
    use, uses = time_use(timeline), device_uses(timeline)
    assert use.total_s == close(timeline.iteration_s * len(uses))
    assert sum(use.work_s.values()) == close(sum(item.busy_s for item in uses))
    assert use.after_s == close(sum(timeline.iteration_s - item.last_s for item in uses))
    # The same sums, wait by wait.
    seconds: dict[Kind | None, float] = {}
    moving: dict[Kind | None, float] = {}
    for wait in waits(timeline):
        kind = Kind(int(timeline.program.kind[wait.cause]))
        seconds[kind] = seconds.get(kind, 0.0) + wait.end_s - wait.start_s
        moving[kind] = moving.get(kind, 0.0) + wait.transfer_s
    assert {item.kind: item.seconds for item in use.waits} == close(seconds)
    assert {item.kind: item.transfer_s for item in use.waits} == close(moving)
    assert use.waiting_s == close(sum(seconds.values()) + use.after_s)
    # The critical path is spent somewhere from beginning to end.
    assert sum(path_seconds(timeline).values()) == close(timeline.iteration_s)
    reach("waits", use.waits)
    reach("moving", any(item.transfer_s for item in use.waits))
    reach("after", use.after_s)
    reach("reduced", any(item.kind in (Kind.REDUCE_GRAD, Kind.REDUCE_TIE) for item in use.waits))
    reach("path_moves", any(location.source for location in path_seconds(timeline)))
    sentences = explain(evaluation, case.profile)
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)


def test_a_run_that_waits_a_little_for_an_old_message() -> None:
    # As above, but d1 is half a second late from its second forward on: it found the message, sent at 4 s, at 9.5 s.
    evaluation = evaluate_costs(two_stages(num_microbatches=2).costs)
    program = evaluation.program
    start, end = evaluation.timeline.start_s.copy(), evaluation.timeline.end_s.copy()
    for action in range(program.num_actions):
        name = str(program.action(action))
        if name in ("0SEND_F1@d1", "1RECV_F1@d0"):
            end[action] = 9.5
        elif name in ("1F1", "1B1") or start[action] >= 13:
            start[action], end[action] = start[action] + 0.5, end[action] + 0.5
    run = build_timeline(evaluation.proof, start, end, "measured")
    path = [str(program.action(action)) for action in critical_path(run)]
    assert path[path.index("1F0") :][:4] == ["1F0", "1B0", "1F1", "1B1"]
    # Of that message only what was waited for counts, beside the 3 s of the first one.
    assert path_seconds(run)[PathLocation(source="d0", target="d1")] == pytest.approx(3.5)
    assert sum(path_seconds(run).values()) == pytest.approx(run.iteration_s)


def test_a_full_device_beside_the_path_is_a_bottleneck_too() -> None:
    # GPipe, 8 micro-batches: d1 runs F 1-17 and B 17-41, then d0 the last B until 44. So d1 is busy for 40 of 44 s, but
    # d0 has 25 s of the path: F 0-1, and B 20-44 after the first B of d1.
    profile, cluster = profile_of([(1, 2, 1), (2, 2, 1)]), cluster_of([1.0, 1.0])
    timeline = evaluate(balanced(Problem(profile, cluster, 8, schedule="gpipe")), profile, cluster).timeline
    bottleneck = find_bottleneck(timeline)
    assert bottleneck is not None
    assert (bottleneck.main, bottleneck.full_device, bottleneck.device) == (PathLocation(device="d0"), "d1", "d1")
    (sentence,) = bottleneck_sentences(timeline)
    assert sentence == (
        "The bottlenecks are d1, which is almost never idle, and d0: the critical path is 56.8 % computing on d0 and "
        "43.2 % computing on d1. d1 is busy for 90.9 % of the iteration, from 1.00 s after its start to 3.00 s before "
        "its end."
    )
    # With 4 micro-batches d1 is busy for 20 of 24 s, which is below the limit.
    timeline = evaluate(balanced(Problem(profile, cluster, 4, schedule="gpipe")), profile, cluster).timeline
    bottleneck = find_bottleneck(timeline)
    assert bottleneck is not None
    assert (bottleneck.main, bottleneck.full_device) == (PathLocation(device="d0"), "")
    assert bottleneck_sentences(timeline)[0].startswith("The bottleneck is d0: ")


def test_devices_that_are_busy_for_as_long_are_counted() -> None:
    # Four equal replicas of one stage, each busy all the time.
    profile, cluster = profile_of([(4, 4, 4)]), cluster_of([1.0] * 4)
    group = on("d0", "d1", "d2", "d3")
    plan = _on_groups(profile, cluster, 2, [Stage(start=0, stop=1, forward=group, backward=group)])
    sentence = bottleneck_sentences(evaluate(plan, profile, cluster).timeline)[0]
    assert sentence.endswith("; 3 other devices are busy for as long.")
    plan = _on_groups(profile, cluster, 2, [Stage(start=0, stop=1, forward=on("d0"), backward=on("d0"))])
    assert bottleneck_sentences(evaluate(plan, profile, cluster).timeline)[0].endswith("from its start to its end.")


@st.composite
def busy_cases(draw: st.DrawFn) -> Case:
    """Devices that compute nearly all the time; messages are short. The second is busy the longest, and the first has
    more of the path: its short forwards do not count, and its backwards take longer than the forwards of the second."""
    forward = draw(st.integers(2, 4))
    backward = draw(st.integers(forward, 6))
    profile, cluster = profile_of([(1, backward, 1), (forward, backward, 1)]), cluster_of([1.0, 1.0])
    return Case(profile, cluster, balanced(Problem(profile, cluster, draw(st.integers(16, 20)), schedule="gpipe")))


def with_slow_link(num_microbatches: int, bandwidth: float) -> Case:
    """Two stages with a link that is slow in one direction only: in both, each has half of the path."""
    case = two_stages(num_microbatches=num_microbatches, wire=Wire(bandwidth=1e6))
    link = Link(source="d0", target="d1", wire=Wire(bandwidth=bandwidth))
    cluster = msgspec.structs.replace(case.cluster, links=(link,))
    plan = msgspec.structs.replace(case.plan, cluster=Origin(name=cluster.name, digest=cluster.digest))
    return Case(case.profile, cluster, plan)


EQUAL_LOADS = st.builds(
    equal_case, st.sampled_from([[0, 1], [0, 1, 2]]), st.integers(4, 12), st.sampled_from(NAMED_SCHEDULES)
)
SLOW_LINKS = st.builds(with_slow_link, st.integers(1, 6), st.sampled_from([0.25, 0.5, 1.0]))


@reaches(device=0.05, link=0.02, none=0.02, full=0.02, equal=0.02)
@examples(160)
@given(cases() | busy_cases() | EQUAL_LOADS | SLOW_LINKS)
def test_the_bottleneck_is_consistent_with_the_loads(case: Case) -> None:
    timeline = evaluate_costs(case.costs).timeline
    bottleneck = find_bottleneck(timeline)
    sentences = bottleneck_sentences(timeline)
    if bottleneck is None:
        assert timeline.iteration_s == 0
        assert sentences == []
        return
    busy_s = {use.device: use.busy_s for use in device_uses(timeline)}
    largest_s, is_full = max(busy_s.values()), max(busy_s.values()) >= FULL_LOAD * timeline.iteration_s
    assert (bottleneck.main is None) == (max(bottleneck.parts.values()) < MAIN_SHARE * timeline.iteration_s)
    if bottleneck.main is None:
        assert bottleneck.device == ""
        reach("none")
        assert sentences[0].startswith("No single device or link is the bottleneck: ")
        return
    reach("device" if bottleneck.main.device else "link")
    assert sentences[0].startswith("The bottlenecks are " if bottleneck.full_device else "The bottleneck is ")
    if bottleneck.device:
        own_s = busy_s[bottleneck.device]
        num_equal = sum(EQUAL_LOAD * own_s <= other_s <= own_s / EQUAL_LOAD for other_s in busy_s.values())
        assert ("busy for as long" in sentences[0]) == (num_equal > 1)
        reach("equal", num_equal > 1)
        assert not is_full or busy_s[bottleneck.device] >= EQUAL_LOAD * largest_s
    if bottleneck.full_device:
        assert busy_s[bottleneck.full_device] == largest_s
        assert is_full
        reach("full")
