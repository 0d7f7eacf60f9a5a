"""Exports for FlagScale: meshes of unequal devices and replicas, and what only FlagScale cannot say."""

from typing import Any

import msgspec
import yaml

import penstock
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile, obstacles

SIX = devices(6)
KINDS = ["x", "x", "y", "y", "y", "y"]
MIXED = msgspec.structs.replace(
    SIX,
    devices=tuple(msgspec.structs.replace(device, kind=kind) for device, kind in zip(SIX.devices, KINDS, strict=True)),
)


def profile_of(names: list[str]) -> penstock.Profile:
    """A profile with the times of both kinds."""
    profile = named_profile(names)
    units = tuple(
        msgspec.structs.replace(
            unit, times=tuple(msgspec.structs.replace(unit.times[0], kind=kind) for kind in ("x", "y"))
        )
        for unit in profile.units
    )
    return msgspec.structs.replace(profile, units=units)


BLOCKS = profile_of(block_names(6))


def config(plan: Plan) -> Any:
    return yaml.safe_load(export(plan, BLOCKS, MIXED, "flagscale").files["hetero.yaml"])


def test_meshes_are_runs_of_equal_stages() -> None:
    groups = [["d0", "d1"], ["d2"], ["d3"], ["d4", "d5"]]
    plan = make_plan(BLOCKS, MIXED, [0, 3, 5, 9, 14], groups, schedule="1f1b", recompute=[0, 2], rows=4)
    found = config(plan)
    assert found["system"]["pipeline_model_parallel_size"] == 4
    assert found["system"]["hetero"] == {
        "enable_hetero": True,
        "hetero_pipeline_layer_split": [1, 1, 2, 2],
        "hetero_process_meshes": [1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 2, 1],
        "hetero_device_types": ["x", "y", "y"],
        "hetero_current_device_type": "x",
        "standalone_embedding_stage": False,
    }
    assert found["system"]["recompute"] == {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 2,
        "recompute_granularity_per_stage_micro_batch": [[1, 4, 1], [1, 4, 0], [1, 4, 1], [1, 4, 0]],
        "recompute_num_layers_per_stage_micro_batch": [[1, 4, 1], [1, 4, 0], [1, 4, 2], [1, 4, 0]],
    }
    assert found["model"] == {
        "num_layers": 6,
        "micro_batch_size": 2,
        "global_batch_size": 16,
        "untie_embeddings_and_output_weights": True,
    }


def test_without_recomputation() -> None:
    plan = make_plan(BLOCKS, MIXED, [0, 7, 14], [["d0"], ["d1"]], schedule="1f1b")
    assert "recompute" not in config(plan)["system"]


def test_flagscale_cannot_say() -> None:
    mixed = make_plan(BLOCKS, MIXED, [0, 7, 14], [["d1", "d2"], ["d3"]], schedule="1f1b")
    assert obstacles(mixed, BLOCKS, MIXED, "flagscale") == {"kinds of a stage": "--no-replication"}
    ends = make_plan(BLOCKS, MIXED, [0, 1, 14], [["d0"], ["d1"]], schedule="1f1b")
    assert obstacles(ends, BLOCKS, MIXED, "flagscale") == {"cuts outside of blocks": "plan for the engine"}
    inside = make_plan(BLOCKS, MIXED, [0, 2, 14], [["d0"], ["d1"]], schedule="1f1b")
    assert obstacles(inside, BLOCKS, MIXED, "flagscale") == {"cuts inside blocks": "--whole-blocks"}
    parts = make_plan(BLOCKS, MIXED, [0, 7, 14], [["d0", "d1"], ["d2", "d3", "d4"]], schedule="1f1b", rows=4)
    assert "parts of rows" in obstacles(parts, BLOCKS, MIXED, "flagscale")
