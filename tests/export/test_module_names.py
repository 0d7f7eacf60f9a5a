"""The names of modules are those of transformers, and the parts of all stages hold every parameter once."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from penstock.export.module_names import HUGGING_FACE, model_names, rotary_modules, stage_modules
from penstock.export.subject import Subject, make_subject
from penstock.simulate import evaluate
from tests.support.exports import block_names, devices, make_plan, named_profile

BLOCKS = 3
TWO = devices(2)
EXPERTS = {
    "mixtral": {"num_local_experts": 2},
    "gpt_oss": {"num_local_experts": 2},
    "qwen3_moe": {"num_experts": 2},
    "deepseek_v3": {"n_routed_experts": 8, "first_k_dense_replace": 1},
}


def subject(names: list[str], cut: int, architecture: str = "") -> Subject:
    profile = named_profile(names, architecture=architecture)
    plan = make_plan(profile, TWO, [0, cut, len(names)], [["d0"], ["d1"]])
    return make_subject(evaluate(plan, profile, TWO), profile)


@pytest.mark.parametrize("architecture", list(HUGGING_FACE))
def test_the_names_are_those_of_transformers(architecture: str) -> None:
    found = subject(block_names(BLOCKS), 3, architecture)
    depth = "n_layer" if architecture in ("gpt2", "bloom") else "num_hidden_layers"
    config = AutoConfig.for_model(architecture, **{depth: BLOCKS}, **EXPERTS.get(architecture, {}))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    modules = dict(model.named_modules())
    stages = stage_modules(found, model_names(found))
    every = [name for stage in stages for name in (*stage, *rotary_modules(found))]
    assert [name for name in every if name not in modules] == []
    parts = [name for stage in stages for name in stage]
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    holders = {name: [part for part in parts if name.startswith(f"{part}.")] for name in names}
    assert {name: found for name, found in holders.items() if len(found) != 1} == {}
    if any("rotary_emb" in name for name in modules):
        assert rotary_modules(found)


def test_measured_profiles_keep_their_names() -> None:
    names = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"]
    found = subject(names, 2)
    assert stage_modules(found, model_names(found)) == (tuple(names[:2]), tuple(names[2:]))
    assert rotary_modules(found) == ("model.rotary_emb",)


def test_a_model_that_is_not_known_keeps_the_names_of_the_profile() -> None:
    found = subject(["embedding", "block.0.attn", "block.0.mlp", "block.1", "head"], 3)
    assert stage_modules(found, model_names(found)) == (("embedding", "block.0"), ("block.1", "head"))
    assert rotary_modules(found) == ()
