"""The packed arrays of a page: decoded, they are the timeline."""

import base64
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given

from penstock.program.actions import RECV_KINDS, Kind
from penstock.program.dependencies.messages import match_messages
from penstock.program.dependencies.needs import find_needs
from penstock.report.analysis.gaps import find_gaps
from penstock.report.html.payload.arrays import Arrays, time_unit, timeline_arrays
from penstock.report.html.payload.packing import Packer
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.summary import critical_path
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples

Numbers = npt.NDArray[Any]


def unpacked(layout: dict[str, tuple[int, int, str]], text: str) -> dict[str, Numbers]:
    data = base64.b64decode(text)
    return {name: np.frombuffer(data, f"<{code}", num, begin) for name, (begin, num, code) in layout.items()}


def test_numbers_are_as_narrow_as_they_can_be() -> None:
    packer = Packer()
    packer.integers("small", [0, 255])
    packer.integers("middle", [256])
    packer.integers("large", np.array([2**32 - 1]))
    packer.integers("none", [])
    packer.floats("floats", [0.5, 2.0])
    assert [code for _, _, code in packer.layout.values()] == ["u1", "u2", "u4", "u1", "f4"]
    assert all(begin % 4 == 0 for begin, _, _ in packer.layout.values())
    decoded = unpacked(packer.layout, packer.text)
    assert {name: values.tolist() for name, values in decoded.items()} == {
        "small": [0, 255], "middle": [256], "large": [2**32 - 1], "none": [], "floats": [0.5, 2.0]
    }  # fmt: skip


def test_receives_are_left_out_and_references_follow() -> None:
    timeline = evaluate_costs(two_stages(num_microbatches=1).costs).timeline
    arrays = timeline_arrays(timeline)
    decoded = unpacked(arrays.layout, arrays.text)
    names = [Kind(kind).name for kind in decoded["kind"].tolist()]
    assert names == ["F", "SEND_F", "B", "STEP", "F", "B", "SEND_B", "STEP"]
    assert arrays.begins == [0, 4, 8]
    # 0B0 needs 1SEND_B0, which has index 6, and 0F0; 1F0 needs 0SEND_F0.
    begin = np.append(0, np.cumsum(decoded["numNeeds"])).astype(np.int64)
    needs = [decoded["needs"][first:last].tolist() for first, last in pairwise(begin.tolist())]
    assert needs == [[], [0], [6, 0], [2], [1], [4], [5], [5]]
    assert decoded["path"].tolist() == [0, 1, 4, 5, 6, 2]
    assert decoded["peer"].tolist() == [2, 1]
    assert decoded["bytes"].tolist() == [4.0, 4.0]
    # 14 seconds: in units of 10 nanoseconds they have 32 bits.
    assert arrays.unit_s == 1e-8
    assert (decoded["end"] * arrays.unit_s).tolist()[:4] == [2.0, 5.0, 14.0, 14.0]


def test_units_of_time() -> None:
    assert [time_unit(seconds) for seconds in (1e-6, 4.0, 4.1, 400.0, 4e6)] == [1e-9, 1e-9, 1e-8, 1e-7, 1e-3]


@reaches(messages=0.05, reductions=0.05, moved=0.05, gaps=0.05)
@examples(40)
@given(cases())
def test_read_back(case: Case) -> None:
    timeline = evaluate_costs(case.costs).timeline
    program, arrays = timeline.program, timeline_arrays(timeline)
    decoded = unpacked(arrays.layout, arrays.text)
    shown = np.flatnonzero(~np.isin(program.kind, RECV_KINDS))
    assert np.array_equal(decoded["kind"], program.kind[shown])
    assert np.array_equal(decoded["stage"], program.stage[shown])
    assert np.allclose(decoded["start"] * arrays.unit_s, timeline.start_s[shown], rtol=0, atol=arrays.unit_s)
    # No receive has needs, and what arrives with one is named by its send.
    graph = find_needs(program, timeline.cause)
    assert np.array_equal(decoded["numNeeds"], np.diff(graph.begin)[shown])
    assert np.array_equal(shown[decoded["needs"].astype(np.int64)], graph.needs)
    sends, receives = match_messages(program)
    send_of = dict(zip(receives.tolist(), sends.tolist(), strict=True))
    path = [send_of.get(action, action) for action in critical_path(timeline)]
    assert np.array_equal(shown[decoded["path"].astype(np.int64)], path)
    gaps = find_gaps(timeline)
    _check_gaps(arrays, decoded, gaps)
    reach("messages", send_of)
    reach("reductions", (program.kind == Kind.REDUCE_GRAD).any())
    reach("moved", set(path) & set(send_of.values()))
    reach("gaps", gaps)


def _check_gaps(arrays: Arrays, decoded: dict[str, Numbers], gaps: list[Any]) -> None:
    assert arrays.gap_begins[-1] == len(gaps)
    assert np.array_equal(decoded["gapParts"], [len(gap.parts) for gap in gaps])
    parts = [part for gap in gaps for part in gap.parts]
    assert np.array_equal(decoded["partReason"], [part.reason for part in parts])
    ends = np.array([part.end_s for part in parts])
    assert np.allclose(decoded["partEnd"] * arrays.unit_s, ends, rtol=0, atol=arrays.unit_s)
