"""Megatron-Core's own parser, configuration and schedule accept exports, and mean the same by them."""

import shlex
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.plan import Plan, find_grid
from penstock.program import Kind
from tests.support.engine_packages import engine_module
from tests.support.export_plans import EIGHT, plans
from tests.support.exports import export
from tests.support.reach import reach, reaches

pytestmark = pytest.mark.filterwarnings("ignore")


def arguments(plan: Plan, profile: penstock.Profile) -> dict[str, str]:
    """The options of the exported script, each with its last value."""
    words = shlex.split(export(plan, profile, EIGHT, "megatron").files["megatron.sh"], comments=True)
    return {word: words[index + 1] for index, word in enumerate(words[:-1]) if word.startswith("--")}


def config_of(found: dict[str, str]) -> Any:
    module = engine_module("megatron.core.transformer.transformer_config")
    ranks = int(found["--pipeline-model-parallel-size"])
    return module.TransformerConfig(
        num_layers=int(found["--num-layers"]),
        hidden_size=8,
        num_attention_heads=2,
        pipeline_model_parallel_size=ranks,
        pipeline_dtype=engine_module("torch").float32 if ranks > 1 else None,
        pipeline_model_parallel_layout=found["--pipeline-model-parallel-layout"],
        recompute_granularity=found.get("--recompute-granularity"),
        recompute_method=found.get("--recompute-method"),
        recompute_num_layers=int(value) if (value := found.get("--recompute-num-layers")) else None,
    )


@reaches(layout=0.3, pattern=0.1)
@given(data=st.data())
def test_megatron_builds_the_stages_of_the_plan(data: st.DataObject) -> None:
    engine_module("megatron.core")
    plan, profile = data.draw(plans("megatron"))
    found = arguments(plan, profile)
    names = [unit.name for unit in profile.units]
    if "--hybrid-layer-pattern" in found:
        reach("pattern")
        check_pattern(found["--hybrid-layer-pattern"], plan, names)
        return
    reach("layout")
    layout = config_of(found).pipeline_model_parallel_layout
    kinds = engine_module("megatron.core.transformer.enums").LayerType
    grid = find_grid(plan)
    for number, stage in enumerate(plan.stages):
        chunk, rank = divmod(number, grid.num_ranks)
        layers = names[stage.start : stage.stop]
        held = layout.layout[rank][chunk]
        assert (kinds.embedding in held, kinds.loss in held) == ("embedding" in layers, "head" in layers)
        assert grid.rank_of_stage[number] == rank
        blocks = sorted({int(name.split(".")[1]) for name in layers if name.startswith("block.")})
        at = {"vp_stage": chunk, "pp_rank": rank}
        offset = sum(
            layout.layout[item % grid.num_ranks][item // grid.num_ranks].count(kinds.decoder) for item in range(number)
        )
        assert held.count(kinds.decoder) == len(blocks)
        assert list(range(offset, offset + len(blocks))) == blocks, at


def check_pattern(pattern: str, plan: Plan, names: list[str]) -> None:
    """The symbols are Megatron's, one for each part of a block."""
    symbols = engine_module("megatron.core.ssm.mamba_hybrid_layer_allocation").Symbols
    known = {"attn": symbols.ATTENTION, "mlp": symbols.MLP}
    parts = [name.split(".")[-1] for name in names]
    expected = [
        "".join(known[part] for part in parts[stage.start : stage.stop] if part in known) for stage in plan.stages
    ]
    assert pattern.split("|") == expected


@reaches(loop=0.1, straight=0.3)
@given(data=st.data())
def test_megatron_runs_the_order_of_the_plan(data: st.DataObject) -> None:
    """From Megatron's own table of micro-batches and chunks, and its own number of warm-up forwards."""
    schedules = engine_module("megatron.core.pipeline_parallel.schedules")
    plan, profile = data.draw(plans("megatron"))
    grid, num = find_grid(plan), plan.num_microbatches
    program = penstock.evaluate(plan, profile, EIGHT).program
    reach("loop", grid.num_chunks > 1)
    reach("straight", grid.num_chunks == 1 and grid.num_ranks > 1)
    for rank, devices in enumerate(grid.devices):
        group = SimpleNamespace(size=lambda: grid.num_ranks, rank=lambda rank=rank: rank)
        chunks = grid.num_chunks if grid.num_chunks > 1 else None
        communicator = SimpleNamespace(pp_group=group, virtual_pipeline_model_parallel_size=chunks)
        total, _, warm_up, _ = schedules.get_pp_rank_microbatches(
            num, grid.num_chunks, grid.num_ranks, p2p_communicator=communicator
        )
        table = schedules.get_schedule_table(num, grid.num_chunks, grid.num_ranks)
        forwards = [("F", chunk * grid.num_ranks + rank, item) for item, chunk in table]
        backwards = [("B", (grid.num_chunks - 1 - chunk) * grid.num_ranks + rank, item) for item, chunk in table]
        expected = forwards[:warm_up]
        for number in range(total - warm_up):
            expected += [forwards[warm_up + number], backwards[number]]
        expected += backwards[total - warm_up :]
        actual = [
            (action.kind.name, action.stage, action.microbatch)
            for action in program.actions(devices[0])
            if action.kind in (Kind.F, Kind.B)
        ]
        assert actual == expected


def test_megatron_refuses_wrong_layouts() -> None:
    """The check can fail: another number of layers, and stages that the ranks do not divide."""
    engine_module("megatron.core")
    good = {
        "--pipeline-model-parallel-size": "2",
        "--num-layers": "4",
        "--pipeline-model-parallel-layout": "Et|tttL",
    }
    config_of(good)
    for wrong in ({"--num-layers": "5"}, {"--pipeline-model-parallel-layout": "Et|tt|tL"}):
        with pytest.raises(AssertionError):
            config_of(good | wrong)
