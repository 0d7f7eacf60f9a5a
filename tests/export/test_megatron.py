"""Exports for Megatron-Core: layouts, hybrid patterns, and what only Megatron cannot say."""

import subprocess
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.export.engines.megatron import layout
from penstock.export.stage_blocks import StageBlocks
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile, obstacles

FOUR = devices(4)
BLOCKS = named_profile(block_names(4))
WHOLE = named_profile(["wte", "wpe", *(f"h.{number}" for number in range(4)), "norm", "lm_head"])


def arguments(plan: Plan, profile: penstock.Profile, folder: Path) -> dict[str, list[str]]:
    """What the script passes to a program, by option."""
    (folder / "megatron.sh").write_text(export(plan, profile, FOUR, "megatron").files["megatron.sh"])
    command = ["sh", str(folder / "megatron.sh"), "printf", "%s\\n"]
    words = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            last = found.setdefault(word, [])
        else:
            last.append(word)
    return found


def test_a_straight_plan_with_replicas(tmp_path: Path) -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 3, 10], [["d0", "d1"], ["d2", "d3"]], schedule="1f1b")
    assert arguments(plan, BLOCKS, tmp_path) == {
        "--tensor-model-parallel-size": ["1"],
        "--pipeline-model-parallel-size": ["2"],
        "--num-layers": ["4"],
        "--pipeline-model-parallel-layout": ["Et|tttL"],
        "--micro-batch-size": ["1"],
        "--global-batch-size": ["8"],
        "--untie-embeddings-and-output-weights": [],
    }


def test_a_loop_with_the_ends_apart_and_recomputation(tmp_path: Path) -> None:
    groups = [["d1"], ["d0"], ["d1"], ["d0"]]
    plan = make_plan(WHOLE, FOUR, [0, 2, 5, 6, 8], groups, recompute=range(4), schedule="interleaved")
    found = arguments(plan, WHOLE, tmp_path)
    assert found["--pipeline-model-parallel-layout"] == ["E|ttt|t|L"]
    assert found["--microbatch-group-size-per-virtual-pipeline-stage"] == ["2"]
    assert found["--recompute-num-layers"] == ["3"]


def test_tied_ends_stay_tied(tmp_path: Path) -> None:
    tie = penstock.Tie(name="table", parameter_bytes=4, units=(0, BLOCKS.num_units - 1))
    tied = named_profile(block_names(4), ties=[tie])
    plan = make_plan(tied, FOUR, [0, 5, 10], [["d0"], ["d1"]], schedule="1f1b")
    assert "--untie-embeddings-and-output-weights" not in arguments(plan, tied, tmp_path)
    other = named_profile(block_names(4), ties=[penstock.Tie(name="table", parameter_bytes=4, units=(1, 9))])
    plan = make_plan(other, FOUR, [0, 5, 10], [["d0"], ["d1"]], schedule="1f1b")
    assert obstacles(plan, other, FOUR, "megatron") == {"tied parameters": "--untied"}


def test_cuts_inside_blocks_become_a_hybrid_pattern(tmp_path: Path) -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 4, 7, 10], [["d0"], ["d1"], ["d2"]], schedule="1f1b")
    found = arguments(plan, BLOCKS, tmp_path)
    assert found["--hybrid-layer-pattern"] == ["*-*|-*-|*-"]
    assert "--num-layers" not in found
    experts = named_profile([name.replace("3.mlp", "3.experts") for name in block_names(4)])
    plan = make_plan(experts, FOUR, [0, 4, 10], [["d0"], ["d1"]], schedule="1f1b")
    assert arguments(plan, experts, tmp_path)["--hybrid-layer-pattern"] == ["*-*|-*-*E"]


def test_a_sharded_optimizer_is_refused() -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 5, 10], [["d0", "d1"], ["d2", "d3"]])
    stages = (msgspec.structs.replace(stage, sharded_optimizer=True) for stage in plan.stages)
    sharded = msgspec.structs.replace(plan, stages=tuple(stages))
    assert obstacles(sharded, BLOCKS, FOUR, "megatron") == {"sharded optimizer": "--no-sharded-optimizer"}


@pytest.mark.parametrize(
    ("profile", "feature", "switch", "cuts", "groups"),
    [
        (BLOCKS, "map of stages to devices", "--no-virtual-stages", [0, 3, 5, 7, 10], "0 1 1 0"),
        (BLOCKS, "map of stages to devices", "--no-virtual-stages", [0, 5, 10], "0 0"),
        (BLOCKS, "cuts outside of blocks", "--whole-blocks", [0, 1, 4, 10], "0 1 2"),
        (WHOLE, "cuts outside of blocks", "--whole-blocks", [0, 1, 8], "0 1"),
        (WHOLE, "cuts outside of blocks", "--whole-blocks", [0, 7, 8], "0 1"),
        (named_profile(["e", "0.a", "0.mlp", "h"]), "cuts inside blocks", "--whole-blocks", [0, 2, 4], "0 1"),
        (named_profile([str(number) for number in range(4)]), "model", "another engine", [0, 2, 4], "0 1"),
        (named_profile(["e", "a.0", "b.0", "h"]), "model", "another engine", [0, 2, 4], "0 1"),
        (named_profile(["e", "f", "h"]), "model", "another engine", [0, 2, 3], "0 1"),
    ],
)
def test_megatron_cannot_say(
    profile: penstock.Profile, feature: str, switch: str, cuts: list[int], groups: str
) -> None:
    plan = make_plan(profile, FOUR, cuts, [[f"d{number}"] for number in groups.split()])
    assert obstacles(plan, profile, FOUR, "megatron") == {feature: switch}


def test_the_schedule_is_megatrons() -> None:
    plan = make_plan(BLOCKS, FOUR, [0, 5, 10], [["d0"], ["d1"]], schedule="gpipe")
    assert obstacles(plan, BLOCKS, FOUR, "megatron") == {"order of actions": "--schedule interleaved"}
    groups = [["d0"], ["d1"]] * 2
    plan = make_plan(BLOCKS, FOUR, [0, 3, 5, 7, 10], groups, num_microbatches=5)
    assert obstacles(plan, BLOCKS, FOUR, "megatron") == {"rounds of micro-batches": "-m 6"}


def test_layouts_repeat_blocks() -> None:
    stages = (
        StageBlocks(True, (0,), False),
        StageBlocks(False, tuple(range(1, 13)), False),
        StageBlocks(False, (), True),
    )
    assert layout(stages) == "Et|t*12|L"
