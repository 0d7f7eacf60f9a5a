"""Exports for torchtitan: the fields of its configuration, and what only torchtitan cannot say."""

import json
from typing import Any

import pytest

from penstock.export.schedule_csv import parse_schedule_csv
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile, obstacles

FOUR = devices(4)
BLOCKS = named_profile(block_names(4))


def fields(plan: Plan) -> Any:
    return json.loads(export(plan, BLOCKS, FOUR, "torchtitan").files["parallelism.json"])


def test_the_fields_are_those_of_the_plan() -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 3, 10], [["d0", "d1"], ["d2", "d3"]], schedule="gpipe", recompute=[0, 1])
    assert fields(plan) == {
        "parallelism": {
            "pipeline_parallel_degree": 2,
            "data_parallel_replicate_degree": 2,
            "data_parallel_shard_degree": 1,
            "tensor_parallel_degree": 1,
            "context_parallel_degree": 1,
            "pipeline_parallel_schedule": "PipelineScheduleMulti",
            "module_fqns_per_model_part": [
                ["tok_embeddings", "layers.0"],
                ["layers.1", "layers.2", "layers.3", "norm", "lm_head"],
            ],
        },
        "micro_batch_size": 1,
        "num_microbatches": 4,
        "recompute": True,
    }
    rows = parse_schedule_csv(export(plan, BLOCKS, FOUR, "torchtitan").files["schedule.csv"], where="schedule.csv")
    assert [[str(action) for action in row[:5]] for row in rows] == [
        ["0F0", "0F1", "0F2", "0F3", "0B0"],
        ["1F0", "1F1", "1F2", "1F3", "1B0"],
    ]


@pytest.mark.parametrize(("groups", "name"), [("0 1 0 1", "PipelineScheduleMulti"), ("0 1 1 0", "ZBVZeroBubble")])
def test_the_named_schedule_has_the_map_of_the_plan(groups: str, name: str) -> None:
    devices_of = [[f"d{number}"] for number in groups.split()]
    plan = make_plan(BLOCKS, FOUR, [0, 1, 5, 7, 10], devices_of, schedule="auto_fused")
    parallelism = fields(plan)["parallelism"]
    assert parallelism["pipeline_parallel_schedule"] == name
    assert parallelism["module_fqns_per_model_part"][0] == ["tok_embeddings"]


@pytest.mark.parametrize(
    ("feature", "switch", "cuts", "groups", "split"),
    [
        ("one pipeline rank", "--no-replication", [0, 10], "0", False),
        ("map of stages to devices", "--no-virtual-stages", [0, 3, 5, 10], "0 1 0", False),
        ("split backward", "--no-backward-split", [0, 5, 10], "0 1", True),
        ("cuts inside blocks", "--whole-blocks", [0, 4, 10], "0 1", False),
    ],
)
def test_torchtitan_cannot_say(feature: str, switch: str, cuts: list[int], groups: str, split: bool) -> None:
    devices_of = [[f"d{number}"] for number in groups.split()]
    plan = make_plan(BLOCKS, FOUR, cuts, devices_of, schedule="interleaved", split_backward=split)
    assert obstacles(plan, BLOCKS, FOUR, "torchtitan") == {feature: switch}
