"""The pictures in the schedules' docstrings are what the schedules do: every row, and every column."""

import re
from importlib import import_module

import pytest

from penstock.plan.pricing.costs import Costs
from penstock.program.actions import Kind
from penstock.program.types import Program
from penstock.schedules.registry import schedule
from penstock.simulate.evaluation import evaluate_costs
from tests.support.strategies import equal_case

ROW = re.compile(r"^ +device (\d+) +((?:(?:[A-Za-z]\d+|\.) *)+)", re.MULTILINE)

Drawn = list[tuple[int, str, int, int]]
"""Column, kind, stage, micro-batch."""


def drawn(docstring: str, stage_devices: list[int]) -> list[Drawn]:
    """The picture: a device's first stage in capitals, its second in small letters; each column takes three signs."""
    rows = []
    for device, text in ROW.findall(docstring):
        held = [stage for stage, index in enumerate(stage_devices) if index == int(device)]
        row = []
        for column, cell in enumerate(re.findall(r"..?.?", text.rstrip())):
            assert cell.strip() == cell.rstrip(), f"device {device}: {cell!r} does not start at its column"
            if cell[0] != ".":
                stage = held[0] if cell[0].isupper() else held[1]
                row.append((column, cell[0].upper(), stage, int(cell[1:])))
        rows.append(row)
    return rows


def happened(case_costs: Costs, program: Program) -> list[Drawn]:
    """The same from the simulated timeline."""
    evaluation = evaluate_costs(case_costs, program=program)
    timeline, lowered = evaluation.timeline, evaluation.program
    rows: list[Drawn] = [[] for _ in lowered.devices]
    for place in range(lowered.num_actions):
        action = lowered.action(place)
        if action.kind < Kind.STEP:
            assert timeline.start_s[place] == int(timeline.start_s[place])
            assert timeline.end_s[place] == timeline.start_s[place] + 1
            entry = (int(timeline.start_s[place]), action.kind.name, action.stage, action.microbatch)
            rows[int(lowered.device_of[place])].append(entry)
    return rows


@pytest.mark.parametrize(
    ("name", "module", "stage_devices", "num_microbatches", "split"),
    [
        ("gpipe", "gpipe", [0, 1, 2], 4, False),
        ("1f1b", "one_f_one_b", [0, 1, 2], 4, False),
        ("interleaved", "interleaved", [0, 1, 0, 1], 4, False),
        ("zb_h1", "zb_h1", [0, 1, 2], 5, True),
        ("zb_v", "zb_v", [0, 1, 1, 0], 4, True),
        ("v_half", "v_half", [0, 1, 2, 2, 1, 0], 4, True),
        ("v_min", "v_min", [0, 1, 2, 2, 1, 0], 4, True),
    ],
)
def test_the_picture_is_the_timeline(
    name: str, module: str, stage_devices: list[int], num_microbatches: int, split: bool
) -> None:
    # Every job takes one column: F = I = W = 1 where the backward is parted, else F = B = 1.
    part = 1.0 if split else 0.5
    costs = equal_case(stage_devices, num_microbatches, name, input_grad_s=part, weight_grad_s=part).costs
    picture = drawn(import_module(f"penstock.schedules.methods.{module}").__doc__ or "", stage_devices)
    assert len(picture) == max(stage_devices) + 1
    assert sum(map(len, picture)) == len(stage_devices) * num_microbatches * (3 if split else 2)
    assert picture == happened(costs, schedule(costs))
