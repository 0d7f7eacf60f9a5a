import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from penstock import evaluate, plan
from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.printable_text import escape_text
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.report.analysis.waits import group_waits
from penstock.report.terminal.render import TimelinePicture, device_table, timeline_text, waits_table
from penstock.timeline.types import Timeline
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


def small(
    num_microbatches: int = 2,
    *,
    names: tuple[str, ...] = ("d0", "d1"),
    schedule: str = "1f1b",
    num_units: int = 0,
    cut_bytes: int = 0,
    step_s: float = 0.0,
) -> Timeline:
    """Units with one second each for F, I and W; links of 10 bytes a second, and half a second of latency if used."""
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=0,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=cut_bytes, saved_bytes=1000),),
            times=(
                Times(kind="k", micro_batch_size=1, forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, step_s=step_s),
            ),
        )
        for number in range(num_units or len(names))
    )
    profile = Profile(name="small", micro_batch_size=1, units=units)
    wire = Wire(bandwidth=10.0, latency_s=0.5 if cut_bytes else 0.0)
    devices = tuple(Device(name=name, host="h", kind="k") for name in names)
    cluster = Cluster(name="c", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    planned = plan(profile, cluster, num_microbatches, planner="uniform", schedule=schedule)
    return evaluate(planned, profile, cluster).timeline


def printed(what: RenderableType, width: int = 100) -> str:
    """As on a terminal without colours."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(what)
    return out.getvalue()


def test_a_picture_in_letters() -> None:
    # d0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; d1: F0 1-2, B0 2-4, F1 4-5, B1 5-7; then a step of one second each: 10 s
    # in all, on 40 columns. Both work for 7 of 10 s.
    text = timeline_text(small(step_s=1.0), 43, colour=False)
    assert text.plain.splitlines() == [
        "simulated: 10.0 s for 2 micro-batches, bubble 30.0 %",
        "d0 F0--F1--........B0======....B1======S###",
        "d1 ....F0--B0======F1--B1======S###........",
        "   |-------|-------|-------|-------|-------",
        "   0 s     2       4       6       8",
        "F- forward   B= backward   S# step",
        ".. idle",
    ]


def test_a_picture_of_split_backwards_and_several_stages() -> None:
    # One device, two stages: everything after each other, 2 * (1 + 1 + 1) s of 12 columns and one for the name.
    text = timeline_text(small(1, names=("d",), schedule="zb_v", num_units=2), 26, colour=False)
    lines = text.plain.splitlines()
    assert lines[1] == "d F0--f0--i0~~I0~~w0++W0++"
    assert lines[-1] == "lower case: every second stage of a device"
    assert "I~ input gradient" in text.plain
    assert "idle" not in text.plain


def test_a_picture_in_colours() -> None:
    text = timeline_text(small(step_s=1.0), 43)
    assert text.plain.splitlines()[1] == "d0 0   1   ........0       ....1           "
    # In the legend only the samples are coloured.
    assert text.plain.splitlines()[-2] == "    forward       backward       step"
    legend = text.split("\n")[-2]
    assert [(span.start, span.end) for span in legend.spans] == [(0, 3), (14, 17), (29, 32)]
    assert legend.style == ""
    on = [str(span.style) for span in text.spans]
    for style in ("#ffffff on #0072b2", "#000000 on #d55e00", "#000000 on #909090", "dim"):
        assert style in on


def test_the_console_decides_about_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = TimelinePicture(small())
    assert "d0 F0" in printed(picture, 43)
    out = io.StringIO()
    Console(file=out, width=43, force_terminal=True, color_system="truecolor").print(picture)
    assert "\x1b[38;2;255;255;255;48;2;0;114;178m0   " in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    Console(file=out, width=43, force_terminal=True, color_system="truecolor").print(picture)
    assert "d0 F0" in out.getvalue()
    assert "48;2" not in out.getvalue()


def test_narrow_blocks_show_their_kind_before_their_number() -> None:
    # 9 s on 20 columns (the least): a forward has two. At 9 micro-batches, 30 s on 30 columns, it has one.
    assert timeline_text(small(), 1, colour=False).plain.splitlines()[1] == "d0 F0F1....B0===...B1=="
    row = timeline_text(small(9), 33, colour=False).plain.splitlines()[1]
    assert row == "d0 FF..B0FB1FB2FB3FB4FB5FB6FB7.B8"


NASTY = ("[red]x[/red]", "a\nb\x1b[31m\x07", "[/nothing]", "\u202eevil", "日本語")


def test_names_are_shown_and_not_interpreted() -> None:
    timeline = small(names=NASTY, cut_bytes=10)
    limits = dict.fromkeys(NASTY, 1e9)
    for what in (TimelinePicture(timeline), device_table(timeline, limits), waits_table(timeline, most=100)):
        shown = printed(what, 140)
        assert "[red]x[/red]" in shown
        assert r"a\nb\x1b[31m\x07" in shown
        assert "[/nothing]" in shown
        assert r"\u202eevil" in shown
        assert "日本語" in shown
        assert "\x1b" not in shown


def test_rows_are_in_line_whatever_the_names() -> None:
    names = (*NASTY, "a-very-long-host-name-indeed.example:gpu0", "a-very-long-host-name-indeed.example:gpu1")
    lines = timeline_text(small(names=names), 120, colour=False).plain.splitlines()
    rows, axis = lines[1:8], lines[8]
    assert {cell_len(row) for row in rows} == {cell_len(axis)} == {120}
    assert rows[5].startswith("a-very-long..xample:gpu0 ")
    assert rows[6].startswith("a-very-long..xample:gpu1 ")


def test_devices_that_are_left_out_are_counted() -> None:
    names = tuple(f"d{number}" for number in range(70))
    text = timeline_text(small(1, names=names), 60, colour=False)
    assert "(6 of 70 devices are not shown)" in text.plain
    assert len(text.plain.splitlines()) == 1 + 64 + 1 + 2 + 1
    few = timeline_text(small(1, names=names), 60, colour=False, devices=["d3"])
    assert few.plain.splitlines()[1].startswith("d3 ")


def test_a_table_of_devices() -> None:
    # M = 2, 9 s: both devices work for 6 s; d1 does so from 1 to 7 s without a break.
    # d0 holds two micro-batches of 1000 bytes, d1 one at a time.
    rows = [
        line.split() for line in printed(device_table(small(), {"d0": 1500.0, "d1": None})).splitlines() if line.strip()
    ]
    assert rows[0] == ["device", "busy", "bubble", "inner", "bubble", "peak", "memory", "limit", "sent"]
    assert " ".join(rows[2]) == "d0 6.00 s 33.3 % 33.3 % 2.00 kB ! 1.50 kB (133.3 %) 0 B"
    assert " ".join(rows[3]) == "d1 6.00 s 33.3 % 0.0 % 1.00 kB unknown 0 B"


def test_a_table_of_devices_without_limits() -> None:
    shown = printed(device_table(small(cut_bytes=10), {}))
    assert "limit" not in shown
    assert "20 B" in shown


def test_waits_in_words() -> None:
    # M = 1. d0: F 0-1. Sent 1-2, arrives 2.5. d1: F 2.5-3.5, B 3.5-5.5. Sent 5.5-6.5, arrives 7. d0: B 7-9.
    timeline = small(1, cut_bytes=10)
    assert [group.sentence for group in group_waits(timeline)] == [
        "d0 waited 6.00 s for gradients from d1 (transfer 1.50 s), once, before 0B0",
        "d1 waited 2.50 s for activations from d0 (transfer 1.50 s), once, before 1F0",
    ]
    lines = [line.strip() for line in printed(waits_table(timeline, most=1)).splitlines() if line.strip()]
    assert lines[2:] == [
        "66.7 %   d0 waited 6.00 s for gradients from d1 (transfer 1.50 s), once, before 0B0",
        "2.50 s in 1 more row",
    ]


def test_waits_are_added_up() -> None:
    # Without latency and bytes, M = 2: d0 waits from 2 to 4 s before B0 and from 6 to 7 s before B1.
    groups = group_waits(small())
    assert (groups[0].device, groups[0].waited_s, groups[0].num_waits) == ("d0", 3.0, 2)
    assert groups[0].sentence.endswith(", 2x, longest before 0B0")


@reaches(waits=0.05, many_waits=0.02, narrow=0.02, wide=0.05)
@examples(60)
@given(case=cases(), width=st.integers(1, 200))
def test_everything_can_be_shown(case: Case, width: int) -> None:
    timeline = evaluate(case.plan, case.profile, case.cluster).timeline
    for colour in (True, False):
        lines = timeline_text(timeline, width, colour=colour).plain.splitlines()
        num_rows = len({*timeline.program.device_of[timeline.is_compute].tolist()})
        assert {len(line) for line in lines[1 : 2 + num_rows]} == {max(width, 23)}
    printed(device_table(timeline, {device.name: 1000.0 for device in case.cluster.devices}), width)
    groups = group_waits(timeline)
    assert printed(waits_table(timeline, most=3), 200).count(" waited ") == min(3, len(groups))
    assert [group.waited_s for group in groups] == sorted((group.waited_s for group in groups), reverse=True)
    # All waits together are the idle time of the devices up to the end of each one's last action.
    idle = 0.0
    for device in range(len(timeline.program.devices)):
        mine = (timeline.program.device_of == device) & timeline.is_compute
        if mine.any():
            idle += timeline.end_s[mine].max() - (timeline.end_s - timeline.start_s)[mine].sum()
    assert math.isclose(sum(group.waited_s for group in groups), idle, rel_tol=1e-9, abs_tol=1e-9)
    reach("waits", groups)
    reach("many_waits", len(groups) > 3)
    reach("narrow" if width < 23 else "wide")


@reaches(printable=0.1, escaped=0.1)
@given(st.text())
def test_shown_names_print(name: str) -> None:
    shown = escape_text(name)
    assert shown.isprintable()
    assert (shown == name) == name.isprintable()
    assert Text(shown).plain == shown
    reach("printable" if name.isprintable() else "escaped", name)
