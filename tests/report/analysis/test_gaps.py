"""Reasons of gaps: by hand, and on random cases that the parts of every gap cover it."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

from penstock.program.actions import NONE, Kind
from penstock.report.analysis.gaps import MAX_PARTS, Gap, Reason, find_gaps
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, equal_case, two_stages
from tests.support.thoroughness import examples


def describe(timeline: Timeline) -> list[tuple[str, float, float, list[tuple[str, float, str, int]]]]:
    name, devices = timeline.program.name, timeline.program.devices
    return [
        (
            devices[gap.device],
            gap.start_s,
            gap.end_s,
            [
                (part.reason.name, part.end_s, name(part.action) if part.action != NONE else "", part.num)
                for part in gap.parts
            ],
        )
        for gap in find_gaps(timeline)
    ]


def test_two_stages_by_hand() -> None:
    # tests/timeline/test_causes.py has the timeline: d0 works 0-4, 12-14, 16-18; d1 works 5-13.
    assert describe(evaluate_costs(two_stages(num_microbatches=2).costs).timeline) == [
        (
            "d0",
            4.0,
            12.0,
            [
                ("TRANSFER", 5.0, "0SEND_F0@d1 on d0", 1),
                ("WORK", 9.0, "1B0 on d1", 2),
                ("TRANSFER", 12.0, "1SEND_B0@d0 on d1", 1),
            ],
        ),
        ("d0", 14.0, 16.0, [("TRANSFER", 16.0, "1SEND_B1@d0 on d1", 1)]),
        ("d1", 0.0, 5.0, [("WORK", 2.0, "0F0 on d0", 1), ("TRANSFER", 5.0, "0SEND_F0@d1 on d0", 1)]),
        ("d1", 13.0, 18.0, [("DONE", 18.0, "0B1 on d0", 1)]),
    ]


def test_a_busy_link_is_a_reason() -> None:
    # Forwards of a quarter of a second are sent as messages that hold the link for two: the first passes from 0.25 to
    # 2.25 and arrives at 3.25, the second sets out at 2.25 and arrives at 5.25. d1 does the first from 3.25 to 3.5, and
    # then waits for what is on its way. The third sets out at 4.25 only, so d1 (done with the second at 5.5) again sees
    # only its transfer; but from the first to the second wait the link was what held everything up.
    case = two_stages(num_microbatches=3, schedule_name="gpipe")
    quick = dataclasses.replace(case.costs, forward_s=np.full(2, 0.25))
    timeline = evaluate_costs(quick).timeline
    gaps = [gap for gap in describe(timeline) if gap[0] == "d1"]
    assert [gap[1:] for gap in gaps[:3]] == [
        (0.0, 3.25, [("WORK", 0.25, "0F0 on d0", 1), ("TRANSFER", 3.25, "0SEND_F0@d1 on d0", 1)]),
        (3.5, 5.25, [("TRANSFER", 5.25, "0SEND_F1@d1 on d0", 1)]),
        (5.5, 7.25, [("TRANSFER", 7.25, "0SEND_F2@d1 on d0", 1)]),
    ]
    # If d1 had only the third micro-batch, the reasons of its first gap would go back over the link.
    third = [action for action in range(timeline.program.num_actions) if timeline.program.name(action) == "1F2 on d1"]
    only = np.isin(np.arange(timeline.program.num_actions), third) | (timeline.program.device_of == 0)
    kinds = np.where(only, timeline.program.kind, Kind.RECV_P).astype(np.int8)
    program = dataclasses.replace(timeline.program, kind=kinds)
    alone = dataclasses.replace(timeline, program=program)
    assert next(gap for gap in describe(alone) if gap[0] == "d1")[3] == [
        ("WORK", 0.25, "0F0 on d0", 1),
        ("LINK", 4.25, "0SEND_F1@d1 on d0", 2),
        ("TRANSFER", 7.25, "0SEND_F2@d1 on d0", 1),
    ]


def test_what_is_not_known_is_said() -> None:
    timeline = evaluate_costs(two_stages(num_microbatches=1).costs).timeline
    # A measured device may begin later than what it waited for had come: 1F0 at 5.5, not 5.
    late = np.where(timeline.start_s >= 5, timeline.start_s + 0.5, timeline.start_s)
    end = np.where(timeline.start_s >= 5, timeline.end_s + 0.5, timeline.end_s)
    gaps = describe(dataclasses.replace(timeline, start_s=late, end_s=end))
    first = next(gap for gap in gaps if gap[0] == "d1")
    assert first[3][-1] == ("UNKNOWN", 5.5, "", 1)
    assert first[3][-2] == ("TRANSFER", 5.0, "0SEND_F0@d1 on d0", 1)
    nothing = dataclasses.replace(timeline, cause=np.full(len(timeline.cause), NONE))
    assert all(part[0] in ("UNKNOWN", "DONE") for gap in describe(nothing) for part in gap[3])


def test_long_chains_end_in_a_part_that_says_so() -> None:
    # The first of many stages waits for all the others, one after the other.
    num = 2 * MAX_PARTS
    timeline = evaluate_costs(equal_case(range(num), 1, "gpipe").costs).timeline
    longest = max(find_gaps(timeline), key=lambda gap: gap.end_s - gap.start_s if gap.device == 0 else 0.0)
    assert len(longest.parts) == MAX_PARTS
    assert longest.parts[0].reason == Reason.EARLIER
    assert {part.reason for part in longest.parts[1:]} == {Reason.WORK}


@pytest.mark.parametrize("measured", [False, True])
@reaches(TRANSFER=0.05, WORK=0.05, DONE=0.05, LINK=0.02, several_parts=0.05)
@examples(120)
@given(case=cases())
def test_the_parts_of_a_gap_cover_it_wholly(measured: bool, case: Case) -> None:
    timeline = evaluate_costs(case.costs).timeline
    if measured:  # times that do not match the causes, as with unsynchronised clocks
        random = np.random.default_rng(timeline.program.num_actions)
        delay = np.round(random.uniform(0, 2, len(timeline.start_s)), 2)
        timeline = dataclasses.replace(timeline, start_s=timeline.start_s + delay, end_s=timeline.end_s + 1.5 * delay)
    gaps = find_gaps(timeline)
    for gap in gaps:
        _check_cover(gap)
        _check_reasons(timeline, gap)
        for part in gap.parts:
            reach(part.reason.name)
        reach("several_parts", len(gap.parts) > 1)
    _check_sum(timeline, gaps)


def _check_cover(gap: Gap) -> None:
    assert gap.end_s > gap.start_s
    assert gap.parts[0].start_s == gap.start_s
    assert gap.parts[-1].end_s == gap.end_s
    assert all(part.end_s > part.start_s for part in gap.parts)
    assert all(one.end_s == other.start_s for one, other in pairwise(gap.parts))


def _check_reasons(timeline: Timeline, gap: Gap) -> None:
    """Every part lies within what it names, and is of its sort."""
    kind = timeline.program.kind
    for part in gap.parts:
        if part.reason == Reason.WORK:
            assert kind[part.action] <= Kind.STEP
        if part.reason in (Reason.TRANSFER, Reason.LINK):
            assert kind[part.action] > Kind.STEP
        if part.reason in (Reason.WORK, Reason.TRANSFER, Reason.LINK):
            assert part.end_s <= timeline.end_s[part.action]
            if part.num == 1:
                assert part.start_s >= timeline.start_s[part.action]
        if part.reason == Reason.DONE:
            assert gap.before == NONE
            assert gap.end_s == timeline.iteration_s


def _check_sum(timeline: Timeline, gaps: list[Gap]) -> None:
    """Gaps and work together fill every device's time."""
    for device in np.unique(timeline.program.device_of[timeline.is_compute]).tolist():
        mine = timeline.is_compute & (timeline.program.device_of == device)
        order = np.argsort(timeline.start_s[mine], kind="stable")
        edges = np.maximum.accumulate(np.append(0.0, timeline.end_s[mine][order]))
        worked = float(np.maximum(0.0, edges[1:] - np.maximum(edges[:-1], timeline.start_s[mine][order])).sum())
        idle = sum(gap.end_s - gap.start_s for gap in gaps if gap.device == device)
        if (np.diff(timeline.start_s[mine]) >= 0).all():
            assert worked + idle == pytest.approx(timeline.iteration_s)
