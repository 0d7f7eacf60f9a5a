"""NeMo Automodel's own parser takes the exported recipe, and places the stages as the plan does."""

from pathlib import Path

import pytest
import yaml

from penstock.plan import find_grid
from tests.support.engine_packages import engine_module
from tests.support.exports import block_names, devices, export, make_plan, named_profile

FOUR = devices(4)
LLAMA = named_profile(block_names(6), architecture="llama")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("cuts", "groups"),
    [([0, 5, 14], "d0,d1 d2,d3"), ([0, 1, 5, 9, 14], "d0 d1 d0 d1"), ([0, 3, 5, 9, 14], "d2 d0 d0 d2")],
    ids=["straight with replicas", "loop", "v"],
)
def test_automodel_takes_the_recipe(cuts: list[int], groups: str, tmp_path: Path) -> None:
    parser = engine_module("nemo_automodel.recipes._dist_utils")
    pipelining = engine_module("nemo_automodel.components.distributed.pipelining.functional")
    schedules = engine_module("torch.distributed.pipelining.schedules")
    plan = make_plan(LLAMA, FOUR, cuts, [group.split(",") for group in groups.split()], schedule="gpipe")
    grid = find_grid(plan)
    files = export(plan, LLAMA, FOUR, "automodel").files
    recipe = yaml.safe_load(files["recipe.yaml"])
    parsed = parser.parse_distributed_section(recipe["distributed"])
    config = parsed["pipeline_config"]
    assert (parsed["pp_size"], parsed["dp_size"]) == (grid.num_ranks, grid.num_replicas)
    rows = recipe["step_scheduler"]["local_batch_size"]
    assert rows // config.pp_microbatch_size == plan.num_microbatches >= parsed["pp_size"]
    is_v = schedules.get_schedule_class(config.pp_schedule) == schedules.ScheduleZBVZeroBubble
    for rank in range(grid.num_ranks):
        style = "v" if is_v else "loop"
        found = pipelining.stage_ids_this_rank(rank, grid.num_ranks, plan.num_stages, style=style)
        assert tuple(sorted(found)) == grid.stages_of(rank)
    names = [name for part in config.module_fqns_per_model_part for name in part if name != "model.rotary_emb"]
    assert names == ["model.embed_tokens", *(f"model.layers.{number}" for number in range(6)), "model.norm", "lm_head"]
    assert all("model.rotary_emb" in part for part in config.module_fqns_per_model_part)
