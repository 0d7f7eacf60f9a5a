"""The own losses of Hugging Face models: any split gives the gradients of one pass over the whole batch."""

from typing import Any

import pytest
import torch

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

hf: Any = pytest.importorskip("transformers")
torch.set_num_threads(1)

NUM_ROWS, LENGTH, WORDS = 8, 5, 19
PROBLEM = "single_label_classification"


def make_model(kind: str) -> Any:
    small = {"vocab_size": WORDS, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    if kind == "llama":
        config = hf.LlamaConfig(**small, intermediate_size=16, num_key_value_heads=2, use_cache=False)
        return hf.LlamaForCausalLM(config)
    if kind == "gpt2":
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        gpt = hf.GPT2Config(vocab_size=WORDS, n_embd=8, n_layer=2, n_head=2, use_cache=False, **dropout)
        return hf.GPT2LMHeadModel(gpt)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    bert = hf.BertConfig(**small, intermediate_size=16, use_cache=False, problem_type=PROBLEM, **dropout)
    return hf.BertForMaskedLM(bert) if kind == "bert" else hf.BertForSequenceClassification(bert)


def batch(kind: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(0, WORDS, (NUM_ROWS, LENGTH), generator=generator)
    if kind == "classes":
        return hf.BatchEncoding({"input_ids": words, "labels": words[:, 0] % 2})
    labels = words.clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.6] = -100
    labels[2:4] = -100
    return hf.BatchEncoding({"input_ids": words, "labels": labels})


def gradients(kind: str, plan: Plan) -> tuple[float, dict[str, Any]]:
    pipe = Pipeline(make_model(kind), plan, inputs=batch(kind), blocks=block_names(kind))
    loss = float(pipe.step(batch(kind)))
    pipe.close()
    return loss, {name: item.grad for name, item in pipe.named_parameters().items()}


def block_names(kind: str) -> list[str]:
    layers = {"llama": "model.layers", "gpt2": "transformer.h"}.get(kind, "bert.encoder.layer")
    return [f"{layers}.{number}" for number in range(2)]


@pytest.mark.parametrize("plan", [
    plan_of([0, 2], [["a"]], num_microbatches=4),
    plan_of([0, 1, 2], [["a"], ["b"]], num_microbatches=3),
    plan_of([0, 1, 2], [["a"], ["b", "c"]], num_microbatches=2),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert", "classes"])
def test_own_losses(rank_pool: RankPool, kind: str, plan: Plan) -> None:
    model = make_model(kind)
    loss = model(**batch(kind)).loss
    loss.backward()
    for value, grads in rank_pool.run(len(plan.devices), gradients, kind, plan):
        assert value == pytest.approx(float(loss.detach()), rel=1e-5)
        for name, grad in grads.items():
            expected = model.get_parameter(name).grad
            assert (grad is None) == (expected is None), name
            if grad is not None:
                torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-6)
