"""Timeline files: what is written can be read back, and nothing else gets in."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.program.actions import Kind
from penstock.simulate.evaluation import evaluate_costs
from penstock.timeline.files import load_timeline, save_timeline, timeline_file
from penstock.timeline.summary import bubble_fraction, critical_path, device_uses, waits
from penstock.timeline.types import Timeline
from tests.support.damaged_files import mutated
from tests.support.fuzzing import NUM_DAMAGED
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples

LONG_S = 1e300
ARRAYS = ("start_s", "end_s", "num_bytes", "memory_during", "memory_after", "cause")


def timeline_of(case: Case) -> Timeline:
    return evaluate_costs(case.costs).timeline


@reaches(messages=0.05, reductions=0.05, waits=0.05)
@examples(60)
@given(case=cases())
def test_round_trip(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("timeline") / "t.json"
    timeline = timeline_of(case)
    save_timeline(timeline, path)
    found = load_timeline(path)
    assert found.program.same_actions(timeline.program)
    assert found.program.plan == timeline.program.plan
    assert (found.origin, found.iteration_s) == ("simulated", timeline.iteration_s)
    for name in ARRAYS:
        assert np.array_equal(getattr(found, name), getattr(timeline, name)), name
    assert timeline_file(found) == timeline_file(timeline)
    kinds = [Kind(kind) for kind in set(timeline.program.kind.tolist())]
    reach("messages", any(kind.is_send for kind in kinds))
    reach("reductions", any(kind.is_reduction for kind in kinds))
    reach("waits", list(waits(timeline)))


def test_a_file_knows_that_it_is_of_what_warms_up(tmp_path: Path) -> None:
    timeline = timeline_of(two_stages(num_microbatches=2))
    for is_warm_up in (False, True):
        save_timeline(replace(timeline, is_warm_up=is_warm_up), tmp_path / "t.json")
        assert load_timeline(tmp_path / "t.json").is_warm_up == is_warm_up
        assert ("is_warm_up" in json.loads((tmp_path / "t.json").read_text())) == is_warm_up


def test_the_file_by_hand(tmp_path: Path) -> None:
    # The timeline is worked out in test_causes.py.
    save_timeline(timeline_of(two_stages(num_microbatches=2)), tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())
    assert (found["format"], found["origin"], found["iteration_s"]) == ("penstock.timeline/2", "simulated", 18.0)
    first, second = found["devices"]
    assert (first["device"], first["busy_s"], first["bubble_s"], first["inner_bubble_s"]) == ("d0", 8.0, 10.0, 10.0)
    assert second["inner_bubble_s"] == 0.0
    assert first["events"][6] == {
        "action": "0B0",
        "start_s": 12.0,
        "end_s": 14.0,
        "memory_during": 92.0,
        "memory_after": 76.0,
        "num_bytes": 0.0,
        "cause": ["d1", 4],
    }
    assert second["events"][4]["action"] == "1SEND_B0@d0"
    assert second["events"][4]["num_bytes"] == 4.0
    assert found["waits"][0] == {
        "device": "d0",
        "action": 6,
        "start_s": 4.0,
        "end_s": 12.0,
        "transfer_s": 3.0,
        "cause": ["d1", 4],
    }
    path = [["d0", 0], ["d0", 1], ["d1", 2], ["d1", 3], ["d1", 5], ["d1", 6], ["d1", 7], ["d0", 7]]
    assert found["critical_path"] == path


def changed(tmp_path: Path, change: Any) -> Path:
    path = tmp_path / "t.json"
    save_timeline(timeline_of(two_stages(num_microbatches=1)), path)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return path


def event(value: Any, device: int, number: int) -> Any:
    return value["devices"][device]["events"][number]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value["devices"][1].update(device="d0"), "duplicate device"),
        (lambda value: event(value, 0, 0).update(action="0RECV_B0@dx"), "device 'dx' does not exist"),
        (lambda value: event(value, 0, 0).update(action="0FORWARD"), "is not an action"),
        (lambda value: event(value, 0, 0).update(cause=["d7", 0]), r"the cause \('d7', 0\) does not exist"),
        (lambda value: event(value, 0, 0).update(cause=["d1", 99]), r"the cause \('d1', 99\) does not exist"),
        (lambda value: event(value, 0, 0).update(cause=["d1", -1]), r"the cause \('d1', -1\) does not exist"),
        (lambda value: event(value, 0, 0).update(cause=["d0", 1]), "circle"),
        (lambda value: event(value, 0, 0).update(cause=["d1", 2]), "circle"),
        (lambda value: event(value, 0, 0).update(start_s=2.5), "ends before it starts"),
        (lambda value: event(value, 0, 0).update(start_s=-1.0), "must be finite and not negative"),
        (lambda value: value.update(extra=1), "unknown field"),
        (lambda value: value.update(format="penstock.plan/3"), "must be 'penstock.timeline/2'"),
    ],
)
def test_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(InputError, match=message) as caught:
        load_timeline(path)
    assert str(path) in caught.value.where


@reaches(loaded=0.02, refused=0.2, sound=0.01)
@settings(max_examples=NUM_DAMAGED, deadline=None)
@given(data=st.data())
def test_fuzz(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-timeline.json"
    save_timeline(timeline_of(two_stages(num_microbatches=2)), path)
    path.write_bytes(data.draw(mutated(path.read_bytes())))
    try:
        timeline = load_timeline(path)
    except InputError:
        reach("refused")
        return
    reach("loaded")
    # Every analysis accepts a timeline that the reader accepts.
    path_actions = critical_path(timeline)
    assert path_actions
    assert float(timeline.end_s[path_actions[-1]]) == timeline.iteration_s
    uses = device_uses(timeline)
    assert {use.device for use in uses} <= set(timeline.program.devices)
    fraction = bubble_fraction(timeline)
    # The reader accepts actions of one device that overlap, and the longest seconds that a float can hold.
    if timeline.iteration_s < LONG_S and all(use.first_s + use.busy_s <= use.last_s for use in uses):
        reach("sound")
        assert 0 <= fraction <= 1
        assert fraction * timeline.iteration_s == pytest.approx(float(np.mean([use.bubble_s for use in uses])))
    assert all(wait.start_s <= wait.end_s for wait in waits(timeline))
    save_timeline(timeline, path)
    assert timeline_file(load_timeline(path)) == timeline_file(timeline)
