"""Programs as values and as files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InputError, PenstockError
from penstock.program.actions import NONE, Action, Kind
from penstock.program.proof.proof import prove
from penstock.program.types import load_program, program_from_actions, save_program
from penstock.schedules.registry import schedule
from tests.support.damaged_files import mutated
from tests.support.fuzzing import NUM_DAMAGED
from tests.support.oracle import works
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples

CASE = two_stages(num_microbatches=2)
COSTS = CASE.costs
LOWERED = CASE.lowered(COSTS)


def test_from_actions_and_back() -> None:
    orders = [[Action(Kind.F, 0, 0), Action(Kind.SEND_F, 0, 0, "d1")], [Action(Kind.RECV_F, 1, 0, "d0")], []]
    program = program_from_actions(CASE.plan, ["d0", "d1", "d2"], orders)
    assert [list(program.actions(name)) for name in program.devices] == orders
    assert program.offsets.tolist() == [0, 2, 3, 3]
    assert program.device_of.tolist() == [0, 0, 1]
    assert program.peer.tolist() == [NONE, 1, 0]
    assert program.num_actions == 3
    assert program.name(1) == "0SEND_F0@d1 on d0"


def test_is_lowered() -> None:
    assert not schedule(COSTS).is_lowered
    assert LOWERED.is_lowered


def test_arrays_cannot_be_changed() -> None:
    for array in (LOWERED.offsets, LOWERED.kind, LOWERED.stage, LOWERED.microbatch, LOWERED.peer):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_same_actions() -> None:
    assert LOWERED.same_actions(CASE.lowered(COSTS))
    assert not LOWERED.same_actions(schedule(COSTS))
    orders = [list(LOWERED.actions(name)) for name in LOWERED.devices]
    orders[0][0], orders[0][1] = orders[0][1], orders[0][0]
    assert not LOWERED.same_actions(program_from_actions(CASE.plan, LOWERED.devices, orders))


@reaches(lowered=0.05, compute=0.05, messages=0.05, reductions=0.05)
@examples(60)
@given(case=cases(), lowered=st.sampled_from([True, False]))
def test_round_trip(case: Case, lowered: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "program.json"
    costs = case.costs
    program = case.lowered(costs) if lowered else schedule(costs)
    save_program(program, path)
    found = load_program(path)
    assert found.same_actions(program)
    assert found.plan == program.plan
    assert found.kind.dtype == np.int8
    reach("lowered" if lowered else "compute")
    reach("messages", lowered and (program.peer != NONE).any())
    reach("reductions", lowered and costs.reductions)


def test_the_file_can_be_read_by_people(tmp_path: Path) -> None:
    save_program(LOWERED, tmp_path / "p.json")
    value = json.loads((tmp_path / "p.json").read_text())
    assert value["format"] == "penstock.program/2"
    assert [row["device"] for row in value["devices"]] == ["d0", "d1"]
    assert value["devices"][1]["actions"][:4] == ["1RECV_F0@d0", "1RECV_F1@d0", "1F0", "1B0"]


@pytest.mark.parametrize(
    ("change", "message", "where"),
    [
        (lambda rows: rows[1].update(device="d0"), "duplicate device", "$.devices"),
        (lambda rows: rows[0]["actions"].insert(2, "0F"), "requires a micro-batch", "$.devices[0].actions[2]"),
        (
            lambda rows: rows[1]["actions"].insert(0, "1SEND_B0@d5"),
            "device 'd5' does not exist",
            "$.devices[1].actions[0]",
        ),
        (lambda rows: rows[1].update(more=1), "unknown field `more`", "$.devices[1]"),
        (lambda rows: rows[1]["actions"].insert(0, 7), "Expected `str`", "$.devices[1].actions[0]"),
    ],
)
def test_refused(tmp_path: Path, change: Any, message: str, where: str) -> None:
    path = tmp_path / "p.json"
    save_program(LOWERED, path)
    value = json.loads(path.read_text())
    change(value["devices"])
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=message) as caught:
        load_program(path)
    assert caught.value.where == f"{path}, at {where}"


@reaches(loaded=0.05, refused=0.2, proved=0.01, not_proved=0.01)
@settings(max_examples=NUM_DAMAGED, deadline=None)
@given(data=st.data())
def test_fuzz(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-program.json"
    save_program(LOWERED, path)
    path.write_bytes(data.draw(mutated(path.read_bytes())))
    try:
        program = load_program(path)
    except InputError:
        reach("refused")
        return
    reach("loaded")
    save_program(program, path)
    assert load_program(path).same_actions(program)
    # A program of this plan is proved if and only if a naive interpreter can run it.
    try:
        proved = prove(program, COSTS) is not None
    except PenstockError:
        proved = False
    reach("proved", proved)
    reach("not_proved", not proved)
    if program.plan == LOWERED.plan and program.devices == LOWERED.devices:
        assert proved == works(program, COSTS)
