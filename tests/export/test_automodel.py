"""Exports for NeMo Automodel: the recipe, with Hugging Face's names, and what only Automodel cannot say."""

import pytest
import yaml

import penstock
from penstock.plan import Plan
from tests.support.exports import block_names, devices, export, make_plan, named_profile, obstacles

FOUR = devices(4)
LLAMA = named_profile(block_names(4), architecture="llama")
MEASURED = named_profile(
    ["model.embed_tokens", *(f"model.layers.{number}" for number in range(4)), "model.norm", "lm_head"]
)
SHARED = "model.rotary_emb"


@pytest.mark.parametrize(
    ("profile", "cuts"), [(LLAMA, [0, 3, 10]), (MEASURED, [0, 2, 7])], ids=["computed", "measured"]
)
def test_the_recipe(profile: penstock.Profile, cuts: list[int]) -> None:
    plan = make_plan(profile, FOUR, cuts, [["d0", "d1"], ["d2", "d3"]], schedule="1f1b")
    layers = [f"model.layers.{number}" for number in range(1, 4)]
    assert yaml.safe_load(export(plan, profile, FOUR, "automodel").files["recipe.yaml"]) == {
        "step_scheduler": {"local_batch_size": 4, "global_batch_size": 8},
        "distributed": {
            "strategy": "fsdp2",
            "dp_size": 2,
            "tp_size": 1,
            "cp_size": 1,
            "pp_size": 2,
            "activation_checkpointing": False,
            "pipeline": {
                "pp_schedule": "PipelineScheduleMulti",
                "pp_schedule_csv": "schedule.csv",
                "pp_microbatch_size": 1,
                "scale_grads_in_schedule": False,
                "module_fqns_per_model_part": [
                    ["model.embed_tokens", "model.layers.0", SHARED],
                    [*layers, "model.norm", "lm_head", SHARED],
                ],
            },
        },
    }


def cannot_say(plan: Plan, profile: penstock.Profile) -> dict[str, str]:
    return obstacles(plan, profile, FOUR, "automodel")


def test_automodel_cannot_say() -> None:
    gpt2 = named_profile(block_names(4), architecture="gpt2")
    plan = make_plan(gpt2, FOUR, [0, 5, 10], [["d0"], ["d1"]], schedule="1f1b")
    assert cannot_say(plan, gpt2) == {"model": "another engine"}
    few = make_plan(LLAMA, FOUR, [0, 3, 5, 10], [["d0"], ["d1"], ["d2"]], schedule="1f1b", num_microbatches=2)
    assert cannot_say(few, LLAMA) == {"number of micro-batches": "-m 3"}
    one = make_plan(LLAMA, FOUR, [0, 10], [["d0"]], schedule="1f1b")
    assert cannot_say(one, LLAMA) == {"one pipeline rank": "--no-replication"}
    numbered = named_profile(["e", "0", "1", "h"])
    plan = make_plan(numbered, FOUR, [0, 2, 4], [["d0"], ["d1"]], schedule="1f1b")
    assert cannot_say(plan, numbered) == {"model": "another engine"}
