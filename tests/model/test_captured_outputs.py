"""Outputs of inner modules that transformers collects by hooks are results of blocks: values and gradients."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.model.detach import as_leaves, needs_gradient
from penstock.model.trees import same_bits, tensors_of

IDS = torch.randint(60, (4, 7), generator=torch.Generator().manual_seed(0))
INPUTS = {"input_ids": IDS, "labels": IDS}


def mixtral(**options: Any) -> Any:
    transformers = pytest.importorskip("transformers", minversion="5")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
        router_aux_loss_coef=0.5,
        attn_implementation="eager",
        use_cache=False,
    )
    for name, value in options.items():
        setattr(config, name, value)
    return transformers.MixtralForCausalLM(config).train()


def run_blocks(model: nn.Module) -> Any:
    """Run the blocks forward and backward, each with a graph of its own. Return the output of the last one."""
    sample = {name: tensor[:2].clone() for name, tensor in INPUTS.items()}
    activations: Any = INPUTS
    needs: tuple[bool, ...] = tuple(False for _ in tensors_of(INPUTS))
    passes = []
    for block in find_blocks(model, None, sample):
        given, leaves = as_leaves(activations, needs)
        activations = block.call(given, INPUTS)
        needs = needs_gradient(activations)
        passes.append((leaves, [tensor for tensor in tensors_of(activations) if tensor.requires_grad]))
    output, leaves = activations, passes.pop()[0]
    output.loss.backward()
    for before, outputs in reversed(passes):
        pairs = [(out, leaf.grad) for out, leaf in zip(outputs, leaves, strict=True) if leaf.grad is not None]
        torch.autograd.backward([out for out, _ in pairs], [grad for _, grad in pairs])
        leaves = before
    return output


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("use_reentrant", [None, False, True])
@pytest.mark.parametrize(
    "names",
    [("output_router_logits",), ("output_hidden_states",), ("output_router_logits", "output_attentions")],
    ids=",".join,
)
def test_same_bits_as_the_model(names: tuple[str, ...], use_reentrant: bool | None) -> None:
    one, other = (mixtral(**dict.fromkeys(names, True)) for _ in range(2))
    for model in (one, other):
        if use_reentrant is not None:
            model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    expected = other(**INPUTS)
    expected.loss.backward()
    output = run_blocks(one)
    assert same_bits(dict(output), dict(expected))
    assert same_bits(gradients(one), gradients(other))
    if "output_router_logits" in names and not use_reentrant:
        # The auxiliary loss reaches the routers of all layers.
        without = mixtral()
        without(**INPUTS).loss.backward()
        for layer, plain in zip(one.model.layers, without.model.layers, strict=True):
            assert not torch.allclose(layer.mlp.gate.weight.grad, plain.mlp.gate.weight.grad)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_hooks_of_users_run_once() -> None:
    model = mixtral(output_router_logits=True)
    blocks = find_blocks(model, None, INPUTS)
    calls: list[int] = []
    for number, layer in enumerate(model.model.layers):
        layer.mlp.gate.register_forward_hook(lambda *_, number=number: calls.append(number))
    activations: Any = INPUTS
    with torch.no_grad():
        for block in blocks:
            activations = block.call(activations, INPUTS)
    assert calls == [0, 1, 2]


def test_values_that_other_hooks_pass_to_forward_are_refused() -> None:
    class Collects(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))
            self.collected: list[Tensor] = []
            for layer in self.layers:
                layer[0].register_forward_hook(lambda _, __, out: self.collected.append(out))  # type: ignore[index]

        def forward(self, x: Tensor) -> Tensor:
            self.collected.clear()
            for layer in self.layers:
                x = layer(x)
            return x + self.collected[0] + self.collected[2]

    with pytest.raises(InputError, match=r"forward fails where its blocks do not run: IndexError") as raised:
        find_blocks(Collects(), None, torch.randn(2, 4))
    assert "hooks" in raised.value.hint
