"""A model run block by block matches the whole model to the bit: outputs, gradients, buffers, random numbers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from penstock.errors import InputError, MismatchError
from penstock.model.blocks import call_model, find_blocks, shared_parameters
from penstock.model.detach import as_leaves, needs_gradient
from penstock.model.trees import map_tensors, same_bits, tensors_of
from tests.support.model_cases import CASES, GPT, Bags, Case, ResNet


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(3)


def _made(case: Case) -> nn.Module:
    torch.manual_seed(1)
    return case.model()


def _total(output: Any) -> Tensor:
    tensors = [tensor for tensor in tensors_of(output) if tensor.is_floating_point()]
    return sum((tensor.square().sum() for tensor in tensors), torch.zeros(()))


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in model.named_buffers()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [2, 4, 5])
def test_the_chain_is_the_model(name: str, rows: int) -> None:
    case = CASES[name]
    model, twin = _made(case), _made(case)
    blocks = find_blocks(model, case.names, case.inputs(3))
    inputs = case.inputs(rows)

    torch.manual_seed(7)
    expected = call_model(twin, map_tensors(torch.clone, inputs))
    torch.autograd.backward(_total(expected))

    torch.manual_seed(7)
    activations, needs = map_tensors(torch.clone, inputs), tuple(False for _ in tensors_of(inputs))
    passes = []
    for block in blocks:
        given, leaves = as_leaves(activations, needs)
        activations = block.call(given, inputs)
        needs = needs_gradient(activations)
        passes.append((leaves, [tensor for tensor in tensors_of(activations) if tensor.requires_grad]))
    assert same_bits(activations, expected)
    assert same_bits(_buffers(model), _buffers(twin))

    gradients = None
    for (leaves, outputs), _block in reversed(list(zip(passes, blocks, strict=True))):
        torch.autograd.backward([_total(activations)] if gradients is None else outputs, gradients)
        gradients = [leaf.grad for leaf in leaves]
    for (key, one), (_, other) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert one.grad is not None, key
        assert other.grad is not None, key
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-7, msg=key)


@pytest.mark.parametrize("name", CASES)
def test_finding_blocks_leaves_no_trace(name: str) -> None:
    case = CASES[name]
    model = _made(case)
    before, random = _buffers(model), torch.get_rng_state()
    inputs = case.inputs(3)
    torch.set_rng_state(random)
    kept = map_tensors(torch.clone, inputs)
    classes = [type(module) for module in model.modules()]
    find_blocks(model, case.names, inputs)
    assert same_bits(_buffers(model), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert same_bits(inputs, kept)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [type(module) for module in model.modules()] == classes
    assert all("_penstock_handler" not in module.__dict__ for module in model.modules())


def test_every_parameter_is_in_the_block_that_uses_it() -> None:
    blocks = find_blocks(GPT(), None, torch.zeros(2, 7, dtype=torch.long))
    assert [block.name for block in blocks] == ["embed", "place", "layers.0", "layers.1", "layers.2", "norm", "head"]
    assert [len(block.parameters) for block in blocks] == [1, 1, 10, 10, 10, 2, 1]
    assert shared_parameters(blocks) == {"embed.weight": (0, 6)}
    resnet = find_blocks(ResNet(), CASES["resnet"].names, torch.randn(2, 4, 6, 6))
    assert list(resnet[3].parameters) == ["convs.3.weight", "convs.3.bias", "norms.2.weight", "norms.2.bias", "scale"]
    assert "calls" in resnet[0].buffers
    assert "norms.2.running_mean" in resnet[3].buffers


def test_only_values_that_are_needed_later_cross_a_cut() -> None:
    """A skip connection crosses once; values that follow from constants, such as the mask, do not cross."""
    gpt = find_blocks(GPT(), None, torch.zeros(2, 7, dtype=torch.long))
    inputs = torch.zeros(2, 7, dtype=torch.long)
    activations: Any = inputs
    for block in gpt[:-1]:
        activations = block.call(activations, inputs)
        assert [tuple(tensor.shape) for tensor in activations] == [(2, 7, 8)], block.name
    model = ResNet()
    shapes = []
    inputs = activations = torch.randn(2, 4, 6, 6)
    for block in find_blocks(model, CASES["resnet"].names, inputs)[:-1]:
        activations = block.call(activations, inputs)
        shapes.append([tuple(tensor.shape) for tensor in activations])
    image = (2, 4, 6, 6)
    # stem; stem and y; stem and z, from which the next block computes relu(z); w
    assert shapes == [[image], [image] * 2, [image] * 2, [image]]


def test_blocks_of_a_model_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = GPT()
    ids = torch.zeros(2, 7, dtype=torch.long)

    for inputs in (ids, ids.to("meta")):
        blocks = find_blocks(model, None, inputs)
        assert [block.name for block in blocks][:3] == ["embed", "place", "layers.0"]
        assert shared_parameters(blocks) == {"embed.weight": (0, 6)}


def test_activations_of_another_length_than_the_inputs_are_refused() -> None:
    blocks = find_blocks(GPT(), None, torch.zeros(2, 7, dtype=torch.long))
    activations = blocks[0].call(torch.zeros(2, 6, dtype=torch.long))
    with pytest.raises(MismatchError, match=r"'place'.*shape \(2, 6, 8\), but \(2, 7, 8\)"):
        blocks[1].call(activations, torch.zeros(2, 7, dtype=torch.long))


def test_inputs_that_are_not_tensors_must_not_change() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

        def forward(self, x: Tensor, gain: int) -> Tensor:
            result: Tensor = self.parts[1](self.parts[0](x)) * gain
            return result

    blocks = find_blocks(Scaled(), None, (torch.ones(2, 2), 3))
    blocks[0].call((torch.ones(2, 2), 3))
    with pytest.raises(MismatchError, match="an input is 4, but was 3"):
        blocks[0].call((torch.ones(2, 2), 4))
    with pytest.raises(MismatchError, match="structure of the inputs differs"):
        blocks[0].call([torch.ones(2, 2), 3])


def test_a_forward_that_takes_another_branch_later_is_traced_again() -> None:
    class Moody(Bags):
        deep = True

        def forward(self, x: Tensor, index: Tensor, bias: Tensor | None = None) -> Any:
            x = torch.sin(x) if self.deep else torch.cos(x)
            return super().forward(x, index, bias)

    model = Moody()
    inputs = (torch.randn(2, 4), torch.arange(2))
    blocks = find_blocks(model, None, inputs)
    traces, sizes = blocks[0].call.traces, []  # type: ignore[attr-defined]
    for deep in (False, True, False, True, False):
        model.deep = deep
        traces._last = None  # as for a new batch
        torch.manual_seed(1)
        activations: Any = inputs
        for block in blocks:
            activations = block.call(activations, inputs)
        torch.manual_seed(1)
        assert same_bits(activations, model(*inputs))
        sizes.append(sum(map(len, traces._traces.values())))
    assert sizes[2:] == sizes[2:3] * 3  # changing back costs no new trace


class Growing(nn.Module):
    """Computes large tensors right before the blocks that use them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList((nn.Linear(4, 2), nn.Linear(8, 2), nn.Linear(6, 1)))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.parts[0](x))
        z = self.parts[1](torch.cat([y, y * 2, y * 3, y * 4], 1)).mean(0, keepdim=True)
        result: Tensor = self.parts[2](torch.cat([y, z.expand_as(y), y + z], 1))
        return result


def test_a_cut_is_where_the_least_has_to_cross() -> None:
    model, x = Growing(), torch.randn(5, 4)
    blocks = find_blocks(model, None, x)
    first = blocks[0].call(x)
    assert [tuple(tensor.shape) for tensor in first] == [(5, 2)]  # y, and not four times as much
    second = blocks[1].call(first, x)
    assert [tuple(tensor.shape) for tensor in second] == [(5, 2), (1, 2)]  # y and z, and not what is made of them
    assert torch.equal(blocks[2].call(second, x), model(x))


@pytest.mark.parametrize("name", CASES)
def test_evaluation_mode(name: str) -> None:
    """In evaluation mode forward may take another path: BatchNorm outside of blocks updates nothing.

    Attention outside of blocks takes another way to nearly the same numbers there, unless somebody listens.
    """
    case = CASES[name]
    model = _made(case)
    blocks = find_blocks(model, case.names, case.inputs(3))
    model.eval()
    activations = inputs = case.inputs(5)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = call_model(model, inputs)
        torch.manual_seed(1)
        for block in blocks:
            activations = block.call(activations, inputs)
    if name == "gpt, coarse":
        torch.testing.assert_close(activations, expected)
    else:
        assert same_bits(activations, expected)


def test_checkpointed_blocks() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=False)
            return x

    model = Checkpointed()
    x = torch.randn(3, 4)
    blocks = find_blocks(model, None, x)
    torch.manual_seed(1)
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.manual_seed(1)
    activations = x
    for block in blocks:
        activations = block.call(activations, x)
    found = torch.autograd.grad(activations.sum(), list(model.parameters()))
    assert same_bits(found, expected)


def test_a_model_whose_tensors_are_replaced_still_runs() -> None:
    """As when the model is moved, or when a process keeps only its own blocks."""
    case, model = CASES["resnet"], ResNet()
    blocks = find_blocks(model, case.names, case.inputs(3))
    images = case.inputs(2)
    activations = blocks[1].call(blocks[0].call(images), images)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(parameter.detach().clone()))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, buffer.clone())
    calls = model.calls
    del model.get_submodule("convs.0").weight
    assert same_bits(blocks[2].call(activations, images), blocks[2].call(activations, images))
    assert model.calls is calls


def test_a_forward_that_returns_too_early_is_refused() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
            self.hurry = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.parts[0](x)
            if not self.hurry:
                x = self.parts[1](x)
            return x

    model, x = Early(), torch.randn(3, 2)
    blocks = find_blocks(model, None, x)
    model.hurry = True
    with pytest.raises(InputError, match=r"'parts.0': forward calls 'return' where it called 'parts.1'"):
        blocks[0].call(x)
