import dataclasses
import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import evaluate, plan
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import InputError
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.actions import NONE, Kind
from penstock.program.types import program_from_arrays
from penstock.report.terminal.axis import ticks, time_axis
from penstock.report.terminal.cells import MAX_ROWS, Row, draw
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples
from tests.support.undisturbed import undisturbed


def small(
    num_microbatches: int, *, num_devices: int = 2, schedule: str = "1f1b", num_units: int | None = None
) -> Timeline:
    """Units with one second each for F, I and W, nothing to send, no step."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=1),),
            times=(Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0),),
        )
        for number in range(num_units or num_devices)
    )
    profile = Profile(name="small", micro_batch_size=1, units=units)
    wire = Wire(bandwidth=1e9)
    devices = tuple(Device(name=f"d{number}", host="h", kind="k") for number in range(num_devices))
    cluster = Cluster(name="c", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    planned = plan(profile, cluster, num_microbatches, planner="uniform", schedule=schedule)
    return evaluate(planned, profile, cluster).timeline


def letters(row: Row) -> str:
    return "".join("." if cell.kind is None else cell.kind.name for cell in row.cells)


def labels(row: Row) -> str:
    return "".join(cell.text or "_" for cell in row.cells)


def test_every_second_is_a_column() -> None:
    # d0: F0 0-1, F1 1-2, B0 4-6, B1 7-9.  d1: F0 1-2, B0 2-4, F1 4-5, B1 5-7.
    first, second = draw(small(2), 9).rows
    assert (first.device, second.device) == ("d0", "d1")
    assert letters(first) == "FF..BB.BB"
    assert labels(first) == "01__0__1_"
    assert letters(second) == ".FBBFBB.."
    assert labels(second) == "_00_11___"


def test_half_a_second_is_a_column() -> None:
    first, second = draw(small(2), 18).rows
    assert letters(first) == "FFFF....BBBB..BBBB"
    assert letters(second) == "..FFBBBBFFBBBB...."


def test_a_block_knows_its_action() -> None:
    timeline = small(2)
    blocks = draw(timeline, 18).rows[1].blocks
    assert [block.num_cells for block in blocks] == [2, 2, 4, 2, 4, 4]
    assert [block.action == NONE for block in blocks] == [True, False, False, False, False, True]
    assert str(timeline.program.action(blocks[2].action)) == "1B0"
    assert (blocks[2].kind, blocks[2].microbatch) == (Kind.B, 0)


def test_the_larger_part_of_a_cell_wins() -> None:
    # Three columns of 3 s. d0: F0 F1 idle: 2 s, F; idle B0 B0: 2 s, B; idle B1 B1: 2 s, B. All work is 6 of 9 s.
    # Work so far at the edges, in columns: 0.67, 1.33, 2.0; rounded 1, 1, 2: so the second column is idle.
    assert letters(draw(small(2), 3).rows[0]) == "F.B"
    # d1: idle F0 B0: equal parts, F comes first; 0.67. B0 F1 B1: 1.67. B1 idle idle: 2.0. Rounded 1, 2, 2.
    assert letters(draw(small(2), 3).rows[1]) == "FB."


def test_work_smaller_than_a_cell_is_still_seen() -> None:
    # One column holds everything: d0 is busy for 6 of 9 s, more with B (4 s) than with F (2 s).
    cell = draw(small(2), 1).rows[0].cells[0]
    assert cell == (Kind.B, "0")


def test_numbers_that_do_not_fit_are_left_out() -> None:
    timeline = small(12)
    # 1F1B on two equal devices of 1 + 2 s: 1 + 12 * 3 + 2 = 39 s. At 39 columns a backward has two cells.
    row = draw(timeline, 39).rows[0]
    assert [block.label for block in row.blocks if block.kind == Kind.B][-3:] == ["9", "10", "11"]
    assert [block.label for block in row.blocks if block.kind == Kind.F][-2:] == ["", ""]
    assert len(row.cells) == 39


def test_stages_of_a_device_take_turns_in_shade() -> None:
    timeline = small(2, schedule="interleaved", num_units=4)
    row = draw(timeline, 60).rows[0]
    shades = {int(timeline.program.stage[block.action]): block.shade for block in row.blocks if block.kind is not None}
    assert shades == {0: 0, 2: 1}


def test_of_many_devices_some_are_chosen_evenly() -> None:
    timeline = small(1, num_devices=127)
    drawing = draw(timeline, 10)
    assert [row.device for row in drawing.rows] == [f"d{number}" for number in range(0, 127, 2)]
    assert (len(drawing.rows), drawing.num_left_out) == (MAX_ROWS, 63)
    assert draw(small(1, num_devices=64), 10).num_left_out == 0


def test_devices_can_be_named() -> None:
    timeline = small(2)
    drawing = draw(timeline, 9, devices=["d1", "d0"])
    assert [row.device for row in drawing.rows] == ["d1", "d0"]
    assert drawing.rows == draw(timeline, 9).rows[::-1]
    with pytest.raises(InputError, match="no device 'x'"):
        draw(timeline, 9, devices=["x"])


@pytest.mark.parametrize("width", [0, -3, 10**9])
def test_widths_that_cannot_be(width: int) -> None:
    with pytest.raises(InputError, match="columns"):
        draw(small(1), width)


@pytest.mark.parametrize(("field", "value"), [("start_s", -1.0), ("end_s", 0.5), ("end_s", 1e16), ("end_s", math.nan)])
def test_times_that_cannot_be(field: str, value: float) -> None:
    timeline = small(2)
    values = getattr(timeline, field).copy()
    # The second action of d0 runs from 1 to 2 s.
    second = [action for action in range(timeline.program.num_actions) if timeline.program.kind[action] == Kind.F][1]
    values[second] = value
    with pytest.raises(InputError, match="timeline, 0F1 on d0: the action runs from"):
        draw(dataclasses.replace(timeline, **{field: values}), 10)


def test_an_iteration_without_length_is_idle() -> None:
    timeline = small(1)
    nothing = np.zeros_like(timeline.start_s)
    rows = draw(dataclasses.replace(timeline, start_s=nothing, end_s=nothing), 4).rows
    assert [letters(row) for row in rows] == ["....", "...."]


def test_actions_that_overlap_are_drawn_in_their_order() -> None:
    # As if clocks had gone wrong: everything on d0 lasts from 0 to 9 s. The first action keeps the row.
    timeline = small(2)
    on_first = timeline.program.device_of == 0
    start = np.where(on_first, 0.0, timeline.start_s)
    end = np.where(on_first, 9.0, timeline.end_s)
    assert letters(draw(dataclasses.replace(timeline, start_s=start, end_s=end), 9).rows[0]) == "F" * 9


@undisturbed
def test_a_hundred_thousand_actions_are_quick() -> None:
    num = 100_000
    start = np.arange(num, dtype=np.float64)
    program = program_from_arrays(small(1).program.plan, ["d"], [num], np.zeros(num), np.zeros(num), np.arange(num))
    nothing = np.zeros(num)
    timeline = Timeline(
        program, "simulated", start, start + 0.75, nothing, nothing, nothing, np.full(num, NONE, dtype=np.int64)
    )
    before = time.perf_counter()
    row = draw(timeline, 100).rows[0]
    assert time.perf_counter() - before < 1.0
    assert letters(row).count("F") == 75


@reaches(idle=0.05, several_kinds=0.05, shared=0.05, recompute=0.02)
@examples(60)
@given(case=cases(), width=st.integers(1, 150))
def test_cells_tell_the_truth(case: Case, width: int) -> None:
    timeline = evaluate(case.plan, case.profile, case.cluster).timeline
    slot = timeline.iteration_s / width
    for row in draw(timeline, width).rows:
        cells = row.cells
        assert len(cells) == width
        if slot < 1e-100:  # such times cannot be divided further
            continue
        parts = [parts_of(timeline, row.device, number * slot, (number + 1) * slot) for number in range(width)]
        so_far = drawn = 0.0
        for cell, part in zip(cells, parts, strict=True):
            busy = sum(part.values()) / slot
            so_far += busy
            drawn += cell.kind is not None
            reach("idle", cell.kind is None)
            reach("shared", sum(seconds > 0 for seconds in part.values()) > 1)
            assert abs(so_far - drawn) <= 0.5 + 1e-6
            if cell.kind is None:
                assert busy < 1 - 1e-9
            else:
                assert part[cell.kind] >= max(part.values()) - 1e-6 * slot
                assert part[cell.kind] > 0
        kinds = {cell.kind for cell in cells} - {None}
        reach("several_kinds", len(kinds) > 1)
        reach("recompute", Kind.R in kinds)


def parts_of(timeline: Timeline, device: str, start: float, end: float) -> dict[Kind, float]:
    """Seconds of each kind of work between two times, worked out one action at a time."""
    number = timeline.program.devices.index(device)
    planned = dict.fromkeys((Kind.F, Kind.R, Kind.I, Kind.W, Kind.B, Kind.STEP), 0.0)
    for action in range(int(timeline.program.offsets[number]), int(timeline.program.offsets[number + 1])):
        kind = Kind(int(timeline.program.kind[action]))
        if kind in planned:
            planned[kind] += max(0.0, min(end, timeline.end_s[action]) - max(start, timeline.start_s[action]))
    return planned


def test_ticks_are_at_round_times() -> None:
    # 261 ms on 97 columns: 50 ms are 18.6 columns, and 20 ms are 7.4: too narrow for "100" and four columns between.
    assert [(tick.column, tick.label) for tick in ticks(0.261, 97)] == [
        (0, "0 ms"), (19, "50"), (37, "100"), (56, "150"), (74, "200"), (93, "250"),
    ]  # fmt: skip
    assert [tick.label for tick in ticks(2.5e-6, 60)] == ["0.0 us", "0.5", "1.0", "1.5", "2.0"]


@reaches(us=0.02, ms=0.02, s=0.1, few=0.02, several=0.1)
@given(iteration_s=st.floats(0, 1e15) | st.floats(-9, 3).map(lambda power: 10.0**power), width=st.integers(1, 300))
def test_an_axis_fits_and_its_labels_do_not_touch(iteration_s: float, width: int) -> None:
    axis = time_axis(iteration_s, width)
    assert len(axis.line) == width
    assert len(axis.labels) <= width
    planned = ticks(iteration_s, width)
    for earlier, later in pairwise(planned):
        assert earlier.column + len(earlier.label) < later.column
    assert [tick.label.split(" ")[0] for tick in planned if tick.label] == [
        word for word in axis.labels.split() if not word.isalpha()
    ]
    for tick in planned[:1]:
        reach(tick.label.split(" ")[-1])
    reach("several" if len(planned) > 1 else "few")
