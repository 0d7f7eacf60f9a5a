"""A plan in words: sentences worked out by hand, and sums that must come out on random cases."""

import dataclasses
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.types import Cluster
from penstock.plan.types import Plan, Replica, Stage, on
from penstock.planners.bounds.bound import Bound, BoundPart, lower_bound
from penstock.planners.methods.balanced import balanced
from penstock.planners.problem import Problem
from penstock.planners.studies.alternatives import Alternative
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.report.analysis.bottleneck import AS_LONG, FULL, Place, bottleneck_sentences, path_seconds
from penstock.report.analysis.device_time import TimeUse, Waiting, time_use
from penstock.report.text.explanation import alternative_in_words, bound_in_words, explain, gap, prover
from penstock.report.text.placement import holder_sentences, shown_group
from penstock.simulate.evaluation import evaluate, evaluate_costs
from penstock.timeline.build import build_timeline
from penstock.timeline.summary import critical_path, device_uses, waits
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, cases, equal_case, two_stages
from tests.support.thoroughness import examples


def test_two_stages_by_hand() -> None:
    # The timeline is worked out in timeline/test_causes.py: 18 s; d0 works 0-4, 12-14 and 16-18; d1 works 5-13. The
    # chain: F on d0 0-2, there 2-5, F B F B on d1 5-13, back 13-16, B on d0 16-18.
    case = two_stages(num_microbatches=2)
    assert explain(evaluate_costs(case.costs), case.profile) == [
        "d0 runs a; d1 runs b. Every backward runs where its forward does.",
        "Of the devices' time, 22.2 % forward, 22.2 % backward, 55.6 % waiting.",
        (
            "Devices wait most: 27.8 % for gradients (transfers themselves 13.9 %), 13.9 % for activations (transfers "
            "themselves 8.3 %), 13.9 % for the others, their own work done."
        ),
        (
            "No single device or link is the bottleneck: the chain of jobs and transfers that sets the iteration's "
            "length (the critical path) is 66.7 % computing on 2 devices and 33.3 % in transfers on 2 links; most of "
            "it, 44.4 %, computing on d1."
        ),
    ]


def test_a_slow_device_is_the_bottleneck() -> None:
    # d1 works 4 x 30 of 123 s, after one forward of d0 (1 s) and before one backward of it (2 s).
    profile, cluster = profile_of([(1, 1, 1), (10, 10, 10)]), cluster_of([1.0, 1.0])
    result = evaluate(balanced(Problem(profile, cluster, 4)), profile, cluster)
    assert result.timeline.iteration_s == pytest.approx(123, rel=1e-6)
    assert explain(result, profile)[-1] == (
        "The bottleneck is d1: the chain of jobs and transfers that sets the iteration's length (the critical path) is "
        "97.6 % computing on d1 and 2.4 % computing on d0. d1 works 97.6 % of the iteration, from 1.00 s after its "
        "start to 2.00 s before its end."
    )


def _on_groups(profile: Profile, cluster: Cluster, num_microbatches: int, stages: list[Stage]) -> Plan:
    made = Problem(profile, cluster, num_microbatches).plan("test", [0, profile.num_units], [on("d0")])
    return msgspec.structs.replace(made, stages=tuple(stages))


def test_an_all_reduce_is_the_bottleneck() -> None:
    # Half a row takes 1.5 s; each of the two sends 2 (r - 1) / r x 100 bytes at 1 byte a second: 100 s.
    profile, cluster = equal_profile(1, parameter_bytes=100), one_host(2)
    group = on("d0", "d1")
    plan = _on_groups(profile, cluster, 1, [Stage(start=0, stop=1, forward=group, backward=group)])
    result = evaluate(plan, profile, cluster)
    assert result.timeline.iteration_s == 101.5
    words = explain(result, profile)
    assert words[0].startswith("The whole model is on each of d0, d1; every micro-batch's rows are split over them.")
    assert words[2] == (
        "Devices wait most: 98.5 % for all-reduces of a group's gradients (transfers themselves 98.5 %)."
    )
    assert words[3].startswith("The bottleneck is the all-reduce of gradients: ")
    assert "98.5 % in all-reduces and 1.5 % computing on d" in words[3]


def test_a_link_is_the_bottleneck() -> None:
    profile, cluster = equal_profile(2, cut_bytes=100), one_host(2)
    result = evaluate(balanced(Problem(profile, cluster, 1)), profile, cluster)
    # F 1, there 100, F and B 3, back 100, B 2.
    assert path_seconds(result.timeline) == {
        Place(source="d0", target="d1"): 100.0,
        Place(source="d1", target="d0"): 100.0,
        Place(device="d0"): 3.0,
        Place(device="d1"): 3.0,
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
    words = explain(result, profile)
    assert words[0] == "d0 runs u0 and u2; d1 runs u1."
    assert words[1].startswith("The backward of u0 runs on d1, for which nothing has to be sent. ")
    # 500 s on the link from d0 to d1 once: u0's backward is where u1's is.
    assert "The bottleneck is the link from d0 to d1: " in words[-1]


def test_moved_backwards_say_what_they_ship() -> None:
    moved = ((on("d0"), on("d1")), (on("d1"), on("d1")))
    case = two_stages(num_microbatches=2, groups=moved)
    first, second = holder_sentences(case.costs, case.profile)
    assert first == "d0 runs a; d1 runs b."
    assert second == (
        "The backward of a runs on d1, for which 8 B are sent there with every micro-batch. "
        "Every other backward runs where its forward does."
    )
    # Recomputing, only the input (3 bytes) goes over.
    case = two_stages(num_microbatches=2, groups=moved, recompute=True)
    told = holder_sentences(case.costs, case.profile)
    assert "3 B are sent there with every micro-batch" in told[1]
    assert told[2] == "Every stage keeps only its input, and runs its forward again before its backward."
    both = ((on("d0"), on("d1")), (on("d1"), on("d0")))
    case = two_stages(num_microbatches=1, groups=both)
    assert holder_sentences(case.costs, case.profile)[1] == (
        "The backward of a runs on d1, for which 8 B are sent there with every micro-batch; the backward of b runs on "
        "d0, for which 8 B are sent there with every micro-batch; 16 B with every micro-batch in all. "
        "Every other backward runs where its forward does."
    )


def test_recomputed_parts_are_named() -> None:
    case = equal_case([0, 1, 2], 1, "gpipe")
    stages = tuple(
        msgspec.structs.replace(stage, recompute=number < 2) for number, stage in enumerate(case.plan.stages)
    )
    case = Case(case.profile, case.cluster, msgspec.structs.replace(case.plan, stages=stages))
    assert holder_sentences(case.costs, case.profile)[1] == (
        "Only their input is kept of u0 .. u1; the forward runs again before the backward."
    )
    assert "recomputation" in explain(evaluate_costs(case.costs), case.profile)[2]


def test_many_devices_are_told_briefly() -> None:
    case = equal_case(list(range(64)), 2, "1f1b")
    words = explain(evaluate_costs(case.costs), case.profile)
    assert words[0] == (
        "d0 runs u0; d1 runs u1; d2 runs u2; 60 more groups of devices; d63 runs u63. "
        "Every backward runs where its forward does."
    )
    assert len(words) <= 5
    assert max(map(len, words)) < 400
    assert shown_group(on(*(f"d{number}" for number in range(1024)))) == "d0 .. d1023 (1024 devices)"
    shares = (Replica("a", 0.5), Replica("b\n", 0.25), Replica("c", 0.25))
    assert shown_group(shares) == "a (50.0 %), b\\n (25.0 %), c (25.0 %)"


def test_one_device_and_no_time() -> None:
    case = equal_case([0], 1, "gpipe", forward_s=0.0, input_grad_s=0.0, weight_grad_s=0.0)
    bound = lower_bound(case.profile, case.cluster, 1)
    words = explain(evaluate_costs(case.costs), case.profile, alternative=Alternative("x + y", 1.0), bound=bound)
    assert words[:3] == [
        "d0 runs the whole model. Every backward runs where its forward does.",
        "Nothing here takes any time.",
        "Of the other planners, each with its own schedule (penstock compare tries all), x + y is best: 1.00 s.",
    ]
    assert words[3].endswith("so the gap is not known.")


def test_the_alternative_may_be_better() -> None:
    assert alternative_in_words(Alternative("spp + pe", 3.0), 2.0).endswith("3.00 s, 50.0 % longer than this one.")
    assert alternative_in_words(Alternative("spp + pe", 1.0), 2.0).endswith("1.00 s, 50.0 % less than this one.")
    assert alternative_in_words(Alternative("spp + pe", 2.0), 2.0).endswith("2.00 s, just as long.")
    ruled_out = alternative_in_words(Alternative("spp + pe", 1.0, is_allowed=False), 2.0)
    assert ruled_out.endswith("1.00 s (but it uses what was ruled out here), 50.0 % less than this one.")


def test_the_bound_names_what_proves_it() -> None:
    bound = Bound(4.0, "because", (BoundPart("chain", 3.0, "one by one"), BoundPart("work", 4.0, "all work")))
    assert prover(bound).name == "work"
    assert gap(bound, 5.0) == 0.25
    assert bound_in_words(bound, 5.0) == (
        "What could be gained: no plan can be faster than 4.00 s (proved by the work bound: all work); "
        "this one is 25.0 % above."
    )


def test_time_use_by_hand() -> None:
    assert time_use(evaluate_costs(two_stages(num_microbatches=2).costs).timeline) == TimeUse(
        total_s=36.0,
        work_s={Kind.F: 8.0, Kind.B: 8.0},
        waits=(Waiting(Kind.SEND_B, 10.0, 5.0), Waiting(Kind.SEND_F, 5.0, 3.0)),
        after_s=5.0,
    )


def test_a_late_start_behind_a_job_is_no_transfer() -> None:
    # Measured: the second forward begins half a second after the first, which is its cause, has ended.
    timeline = evaluate_costs(equal_case([0], 2, "gpipe").costs).timeline
    late = np.array([0.0, 0.5, 0.5, 0.5, 0.5])
    measured = dataclasses.replace(timeline, start_s=timeline.start_s + late, end_s=timeline.end_s + late)
    assert time_use(measured).waits == (Waiting(None, 0.5, 0.0),)


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
    words = explain(evaluation, case.profile)
    assert all(word.endswith(".") and "\n" not in word for word in words)


def test_a_run_that_waits_a_little_for_an_old_message() -> None:
    # As above, but d1 is half a second late from its second forward on: it found the message, sent at 4 s, at 9.5 s.
    evaluation = evaluate_costs(two_stages(num_microbatches=2).costs)
    program = evaluation.program
    start, end = evaluation.timeline.start_s.copy(), evaluation.timeline.end_s.copy()
    for place in range(program.num_actions):
        name = str(program.action(place))
        if name in ("0SEND_F1@d1", "1RECV_F1@d0"):
            end[place] = 9.5
        elif name in ("1F1", "1B1") or start[place] >= 13:
            start[place], end[place] = start[place] + 0.5, end[place] + 0.5
    run = build_timeline(evaluation.proof, start, end, "measured")
    path = [str(program.action(place)) for place in critical_path(run)]
    assert path[path.index("1F0") :][:4] == ["1F0", "1B0", "1F1", "1B1"]
    # Of that message only what was waited for counts, beside the 3 s of the first one.
    assert path_seconds(run)[Place(source="d0", target="d1")] == pytest.approx(3.5)
    assert sum(path_seconds(run).values()) == pytest.approx(run.iteration_s)


@examples(80)
@given(cases())
def test_who_is_full_is_named(case: Case) -> None:
    timeline = evaluate_costs(case.costs).timeline
    for sentence in bottleneck_sentences(timeline):
        uses = {use.device: use.busy_s for use in device_uses(timeline)}
        head = sentence.removeprefix("The bottleneck is ").removeprefix("The bottlenecks are ")
        named = head.split(":")[0].split(",")[0]
        if named in uses and max(uses.values()) >= FULL * timeline.iteration_s:
            assert uses[named] >= AS_LONG * max(uses.values())
            alike = sum(AS_LONG * uses[named] <= busy <= uses[named] / AS_LONG for busy in uses.values()) - 1
            assert ("as long" in sentence) == (alike > 0)
