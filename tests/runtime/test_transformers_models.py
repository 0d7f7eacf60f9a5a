"""Models of transformers with gradient checkpointing, dropout and router losses train as in a single process."""

from typing import Any

import pytest
import torch

from penstock.model import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

hf: Any = pytest.importorskip("transformers", minversion="5")
torch.set_num_threads(1)
WORDS = 19


def make_model(kind: str, use_reentrant: bool | None) -> Any:
    small = {"vocab_size": WORDS, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2}
    more = {"num_hidden_layers": 2, "intermediate_size": 16, "use_cache": False, "attention_dropout": 0.3}
    torch.manual_seed(0)
    if kind == "llama":
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**small, **more))
    else:
        experts = {"num_local_experts": 4, "output_router_logits": True, "router_aux_loss_coef": 0.5}
        model = hf.MixtralForCausalLM(hf.MixtralConfig(**small, **more, **experts))
    if use_reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    return model.train()


def batch(step: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(step)
    words = torch.randint(0, WORDS, (8, 5), generator=generator)
    return {"input_ids": words, "labels": words.clone()}


def gradients(kind: str, use_reentrant: bool | None, plan: Plan) -> tuple[float, dict[str, Any]]:
    pipe = Pipeline(make_model(kind, use_reentrant), plan, inputs=batch(0), timeout_s=60)
    loss = float(pipe.step(batch(0)))
    pipe.close()
    return loss, {name: item.grad for name, item in pipe.named_parameters().items()}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("use_reentrant", [None, False, True])
@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_same_bits_as_a_single_process(rank_pool: RankPool, kind: str, use_reentrant: bool | None) -> None:
    if kind == "mixtral" and use_reentrant:
        pytest.skip("captured outputs of reentrant checkpoints have no gradients in transformers either")
    model = make_model(kind, None)
    blocks = find_blocks(model, None, batch(0))
    loss = reference_step(model, blocks, 2, None, batch(0))
    expected = {name: item.grad for name, item in model.named_parameters()}
    plan = plan_of([0, 2, len(blocks)], [["a"], ["b"]], num_microbatches=2, schedule="zb_h1")
    for value, grads in rank_pool.run(2, gradients, kind, use_reentrant, plan):
        assert value == float(loss)
        for name, grad in grads.items():
            assert torch.equal(grad, expected[name]), name
