import dataclasses
import json
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import evaluate, plan
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import FileError, InputError
from penstock.plan.types import Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.actions import NONE, Kind
from penstock.program.dependencies.messages import sends_and_consumers
from penstock.program.types import program_from_actions
from penstock.report.trace.chrome import chrome_trace, microseconds, save_trace
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, hand_plan, one_host
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

Event = dict[str, Any]
RowKey = tuple[int, int]


def small(num_microbatches: int = 1, *, latency_s: float = 0.5, names: tuple[str, ...] = ("d0", "d1")) -> Timeline:
    """Two units with one second each for F, I and W; 10 bytes between them at 10 bytes a second."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=10, saved_bytes=7),),
            times=(Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0),),
        )
        for number in range(len(names))
    )
    profile = Profile(name="small", micro_batch_size=1, units=units)
    wire = Wire(bandwidth=10.0, latency_s=latency_s)
    devices = tuple(Device(name=name, host="h", kind="k") for name in names)
    cluster = Cluster(name="c", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    planned = plan(profile, cluster, num_microbatches, planner="balanced", schedule="gpipe")
    return evaluate(planned, profile, cluster).timeline


def refuse(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def events_of(timeline: Timeline) -> list[Event]:
    trace = json.loads(chrome_trace(timeline), parse_constant=refuse)
    return list(trace["traceEvents"])


def nanoseconds(value: float) -> int:
    """As viewers do it: multiplied, and cut."""
    return int(value * 1000)


def with_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


class Span(NamedTuple):
    start: int
    end: int
    name: str


def spans_by_row(events: list[Event]) -> dict[RowKey, list[Span]]:
    events_by_row: dict[RowKey, list[Span]] = defaultdict(list)
    for event in with_phase(events, "X"):
        start = nanoseconds(event["ts"])
        events_by_row[event["pid"], event["tid"]].append(Span(start, start + nanoseconds(event["dur"]), event["name"]))
    return events_by_row


def row_names(events: list[Event]) -> dict[RowKey, tuple[str, str]]:
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    return {
        (event["pid"], event["tid"]): (processes[event["pid"]], event["args"]["name"])
        for event in events
        if event["name"] == "thread_name"
    }


def test_a_trace_by_hand() -> None:
    # d0: F 0-1. Sent 1-2, arrives 2.5. d1: F 2.5-3.5, B 3.5-5.5. Sent 5.5-6.5, arrives 7. d0: B 7-9.
    events = events_of(small())
    names = row_names(events)
    events_by_row = {names[row]: spans for row, spans in spans_by_row(events).items()}
    second = 10**9
    assert events_by_row["d0", "compute"] == [
        (0, second, "0F0"), (7 * second, 9 * second, "0B0"), (9 * second, 9 * second, "0STEP"),
    ]  # fmt: skip
    assert events_by_row["d0", "to d1"] == [(second, second * 5 // 2, "0SEND_F0")]
    assert events_by_row["d1", "to d0"] == [(second * 11 // 2, 7 * second, "1SEND_B0")]
    (send,) = [event for event in events if event["name"] == "0SEND_F0"]
    assert send["args"] == {"stage": 0, "microbatch": 0, "num_bytes": 10.0}
    assert send["cat"] == "transfer"
    flows = [
        (event["ph"], event["name"], event["ts"], names[event["pid"], event["tid"]])
        for event in events
        if "id" in event
    ]
    assert flows == [
        ("s", "activations", 1e6, ("d0", "to d1")),
        ("f", "activations", 2.5e6, ("d1", "compute")),
        ("s", "gradients", 5.5e6, ("d1", "to d0")),
        ("f", "gradients", 7e6, ("d0", "compute")),
    ]


def test_transfers_that_overlap_by_their_latency_get_more_rows() -> None:
    # GPipe: d0's forwards end at 1, 2 and 3 s; each is sent for 1 s and arrives 2.5 s later: 1-4.5, 2-5.5, 3-6.5.
    events = events_of(small(3, latency_s=2.5))
    names = row_names(events)
    events_by_row = {names[row]: [span.name for span in spans] for row, spans in spans_by_row(events).items()}
    assert events_by_row["d0", "to d1"] == ["0SEND_F0"]
    assert events_by_row["d0", "to d1 #2"] == ["0SEND_F1"]
    assert events_by_row["d0", "to d1 #3"] == ["0SEND_F2"]


def test_names_are_data() -> None:
    names = ('"},{"ph":"X', "a\nb\\\u202e[red]")
    events = events_of(small(names=names))
    assert {process for process, _ in row_names(events).values()} == set(names)
    assert (names[0], f"to {names[1]}") in row_names(events).values()


@reaches(messages=0.05, reductions=0.05, parameters=0.02)
@examples(60)
@given(cases())
def test_a_trace_says_what_the_timeline_says(case: Case) -> None:
    timeline = evaluate(case.plan, case.profile, case.cluster).timeline
    events = events_of(timeline)
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    spans = spans_by_row(events)
    check_metadata(timeline, events)
    check_no_overlaps(spans)
    check_slices(timeline, events, spans)
    check_flows(timeline, events, spans)
    check_memory(timeline, events)
    reach("messages", with_phase(events, "s"))
    reach("parameters", (timeline.program.kind == Kind.SEND_P).any())
    reach("reductions", any(row == "reductions" for _, row in row_names(events).values()))


def check_metadata(timeline: Timeline, events: list[Event]) -> None:
    used = {timeline.program.devices[device] for device in timeline.program.device_of.tolist()}
    names = row_names(events)
    assert {process for process, _ in names.values()} == used
    assert len(set(names.values())) == len(names)
    sorted_rows = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_sort_index"}
    sorted_processes = {event["pid"] for event in events if event["name"] == "process_sort_index"}
    assert sorted_rows == set(names) == {(event["pid"], event["tid"]) for event in with_phase(events, "X")}
    assert sorted_processes == {process for process, _ in names} == {event["pid"] for event in events}
    assert all(type(number) is int for row in names for number in row)
    assert len({thread for _, thread in names} | sorted_processes) == len(names) + len(sorted_processes)


def check_no_overlaps(spans: dict[RowKey, list[Span]]) -> None:
    for row in spans.values():
        assert all(earlier.end <= later.start for earlier, later in pairwise(sorted(row)))


def check_slices(timeline: Timeline, events: list[Event], spans: dict[RowKey, list[Span]]) -> None:
    names = row_names(events)
    events_by_row: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for row, entries in spans.items():
        device, name = names[row]
        events_by_row[device, name.partition(" #")[0]] += entries
    expected: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for index in range(timeline.program.num_actions):
        action = timeline.program.action(index)
        device = timeline.program.devices[timeline.program.device_of[index]]
        span = Span(
            round(timeline.start_s[index] * 1e9), round(timeline.end_s[index] * 1e9), str(action._replace(peer=""))
        )
        if action.kind.is_compute:
            expected[device, "compute"].append(span)
        elif action.kind.is_send:
            expected[device, f"to {action.peer}"].append(span)
        elif action.kind.is_collective:
            expected[device, "reductions"].append(span)
    assert {row: sorted(entries) for row, entries in events_by_row.items()} == {
        row: sorted(entries) for row, entries in expected.items()
    }


def check_flows(timeline: Timeline, events: list[Event], spans: dict[RowKey, list[Span]]) -> None:
    names = row_names(events)
    starts = {event["id"]: event for event in with_phase(events, "s")}
    ends = {event["id"]: event for event in with_phase(events, "f")}
    assert len(starts) == len(with_phase(events, "s"))
    assert len(ends) == len(with_phase(events, "f"))
    assert set(starts) == set(ends)
    kinds = timeline.program.kind
    assert len(starts) == ((kinds >= Kind.SEND_F) & (kinds < Kind.SEND_P)).sum()
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        assert (start["name"], start["cat"], end["bp"]) == (end["name"], end["cat"], "e")
        target = names[end["pid"], end["tid"]]
        assert target[1] == "compute"
        assert names[start["pid"], start["tid"]][1].partition(" #")[0] == f"to {target[0]}"
        sent, used = (
            [span for span in spans[event["pid"], event["tid"]] if span.start <= nanoseconds(event["ts"]) <= span.end]
            for event in (start, end)
        )
        # No action starts before the transfer that it consumes has arrived.
        assert any(send.end <= nanoseconds(end["ts"]) for send in sent)
        assert used


def check_memory(timeline: Timeline, events: list[Event]) -> None:
    program = timeline.program
    events_by_row: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for event in with_phase(events, "C"):
        assert event["name"] == "memory"
        events_by_row[event["pid"]].append((nanoseconds(event["ts"]), event["args"]["memory_bytes"]))
    expected: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for device in range(len(program.devices)):
        now, value = 0, math.nan
        for action in range(int(program.offsets[device]), int(program.offsets[device + 1])):
            begin, finish = now, now
            if Kind(int(program.kind[action])).is_compute:
                begin, finish = round(timeline.start_s[action] * 1e9), round(timeline.end_s[action] * 1e9)
            for now, memory in ((begin, timeline.memory_during[action]), (finish, timeline.memory_after[action])):
                if memory != value:
                    value = float(memory)
                    expected[device + 1].append((now, value))
    assert events_by_row == expected


@reaches(fractions=0.1, large=0.05)
@given(st.lists(st.integers(0, 2**50), max_size=20))
def test_microseconds_keep_every_nanosecond(times: list[int]) -> None:
    assert [nanoseconds(value) for value in microseconds(np.array(times, dtype=np.int64))] == times
    reach("fractions", any(time % 1000 for time in times))
    reach("large", any(time > 2**40 for time in times))


def test_what_does_not_match_has_no_arrow() -> None:
    # As from a damaged file: it has the sends of d0, but not the receives of d1.
    program = small(2).program
    kept = [
        [action for action in program.actions(name) if name == "d0" or not action.kind.is_recv]
        for name in program.devices
    ]
    cut = program_from_actions(program.plan, program.devices, kept)
    assert len(sends_and_consumers(program)[0]) == 4
    sends, _ = sends_and_consumers(cut)
    assert [str(cut.action(send)) for send in sends.tolist()] == ["1SEND_B0@d0", "1SEND_B1@d0"]


def test_no_arrow_goes_back_in_time() -> None:
    timeline = small()
    late = np.where(timeline.program.kind == Kind.SEND_F, 2.75, timeline.start_s)
    late_end = np.where(timeline.program.kind == Kind.SEND_F, 3.0, timeline.end_s)
    flows = with_phase(events_of(dataclasses.replace(timeline, start_s=late, end_s=late_end)), "s")
    assert [event["name"] for event in flows] == ["gradients"]


def test_actions_that_overlap_get_more_rows() -> None:
    timeline = small()
    ends = np.where(timeline.program.kind == Kind.F, 20.0, timeline.end_s)
    events = events_of(dataclasses.replace(timeline, end_s=ends))
    check_no_overlaps(spans_by_row(events))
    assert ("d0", "compute #2") in row_names(events).values()


def test_a_timeline_without_actions() -> None:
    program = program_from_actions(small().program.plan, ["d0"], [[]])
    none = np.zeros(0)
    timeline = Timeline(program, "simulated", none, none, none, none, none, np.full(0, NONE, dtype=np.int64))
    assert events_of(timeline) == []


@pytest.mark.parametrize(("field", "value"), [("start_s", math.nan), ("end_s", 2e6), ("memory_after", math.inf)])
def test_numbers_that_a_trace_cannot_say(field: str, value: float) -> None:
    timeline = small()
    values = getattr(timeline, field).copy()
    values[0] = value
    with pytest.raises(InputError, match="timeline, "):
        chrome_trace(dataclasses.replace(timeline, **{field: values}))


def test_a_trace_is_saved_whole(tmp_path: Path) -> None:
    timeline = small()
    save_trace(timeline, tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_bytes() == chrome_trace(timeline)
    about = msgspec.json.decode((tmp_path / "trace.json").read_bytes())["otherData"]
    assert about == {"origin": "simulated", "planner": "balanced", "schedule": "gpipe"}
    with pytest.raises(FileError, match="cannot be written"):
        save_trace(timeline, tmp_path / "missing" / "trace.json")


def test_times_up_to_the_exact_microseconds_of_a_float() -> None:
    # 2**50 ns: a thousandth of a microsecond is then still exact in a double.
    profile, cluster = equal_profile(1), one_host(1)
    stage = Stage(start=0, stop=1, forward=on("d0"), backward=on("d0"))
    timeline = evaluate(hand_plan(profile, cluster, [stage]), profile, cluster).timeline

    def ending(seconds: float) -> Timeline:
        end_s = timeline.end_s.copy()
        end_s[-1] = seconds
        return dataclasses.replace(timeline, end_s=end_s)

    assert chrome_trace(ending(2**50 / 1e9))
    with pytest.raises(InputError, match="the action runs from"):
        chrome_trace(ending(math.nextafter(2**50 / 1e9, math.inf)))
