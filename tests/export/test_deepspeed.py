"""Exports for DeepSpeed: the cuts in layers and in whole blocks, the configuration, and refusals."""

import json
from typing import Any

import pytest

import penstock
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile, obstacles

FOUR = devices(4)
NAMES = block_names(2)
TIED = named_profile(NAMES, ties=[penstock.Tie(name="table", parameter_bytes=4, units=(0, 5))])


def written(plan: Plan, profile: penstock.Profile, name: str) -> Any:
    return json.loads(export(plan, profile, FOUR, "deepspeed").files[name])


def test_a_plan_with_whole_blocks_has_cuts_for_both_lists_of_layers() -> None:
    plan = make_plan(TIED, FOUR, [0, 3, 6], [["d0", "d1"], ["d2", "d3"]], schedule="1f1b", recompute=[1])
    assert written(plan, TIED, "partition.json") == {
        "replicas": 2,
        "recompute": [False, True],
        "partitions": [
            {"layers": NAMES, "cuts": [0, 3, 6], "ties": [[0, 5]]},
            {"layers": ["embedding", "block.0", "block.1", "head"], "cuts": [0, 2, 4], "ties": [[0, 3]]},
        ],
    }
    assert written(plan, TIED, "ds_config.json") == {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 4,
        "pipeline": {"use_reentrant": False},
        "zero_optimization": {"stage": 0},
    }
    assert "same key: embedding, head" in export(plan, TIED, FOUR, "deepspeed").files["README.md"]


@pytest.mark.parametrize("cuts", [[0, 2, 6], [0, 4, 6]])
def test_a_plan_that_cuts_blocks_has_cuts_for_the_layers_of_the_profile_only(cuts: list[int]) -> None:
    plan = make_plan(TIED, FOUR, cuts, [["d0"], ["d1"]], schedule="1f1b")
    partitions = written(plan, TIED, "partition.json")["partitions"]
    assert [(item["layers"], item["cuts"]) for item in partitions] == [(NAMES, cuts)]


def test_layers_that_are_whole_blocks_are_listed_once() -> None:
    profile = named_profile([str(number) for number in range(4)])
    plan = make_plan(profile, FOUR, [0, 1, 4], [["d0"], ["d1"]], schedule="1f1b")
    partitions = written(plan, profile, "partition.json")["partitions"]
    assert partitions == [{"layers": ["0", "1", "2", "3"], "cuts": [0, 1, 4], "ties": []}]


def test_deepspeed_cannot_say() -> None:
    loop = make_plan(TIED, FOUR, [0, 1, 2, 3, 6], [["d0"], ["d1"], ["d0"], ["d1"]])
    assert obstacles(loop, TIED, FOUR, "deepspeed")["map of stages to devices"] == "--no-virtual-stages"
    split = make_plan(TIED, FOUR, [0, 3, 6], [["d0"], ["d1"]], schedule="1f1b", split_backward=True)
    assert obstacles(split, TIED, FOUR, "deepspeed") == {"split backward": "--no-backward-split"}
    gpipe = make_plan(TIED, FOUR, [0, 3, 6], [["d0"], ["d1"]], schedule="gpipe")
    assert obstacles(gpipe, TIED, FOUR, "deepspeed") == {"order of actions": "--schedule 1f1b"}
