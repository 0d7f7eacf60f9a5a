"""How forward calls its layers and torch: directly, with numbers, inside contexts, or unseen by function modes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.model.block_forward import PartialForward
from penstock.model.blocks import find_blocks

WIDTH = 4


class Base(nn.Module):
    """An embedding, layers and a head, with a forward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)


class DirectForward(Base):
    """Calls the forward of its layers, which runs no hooks."""

    def forward(self, ids: Tensor, _mask: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer.forward(x).tanh()
        result: Tensor = self.head(x)
        return result


class Positions(nn.Module):
    """Takes a shape and a number instead of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, WIDTH)

    def forward(self, shape: torch.Size, start: int) -> Tensor:
        result: Tensor = self.table(torch.arange(start, start + shape[1]))
        return result


class ShapeArguments(Base):
    """Passes the shape of its inputs to a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()
        self.more = Positions()

    def forward(self, ids: Tensor, _mask: Tensor) -> Tensor:
        x = self.embed(ids) + self.positions(ids.shape, 2)
        for layer in self.layers:
            x = layer(x).tanh() + self.more.table.weight[0]
        result: Tensor = self.head(x + self.more(x.size(), ids.shape[0]))
        return result


class VmapMask(Base):
    """Makes a mask by nested vmap over indices, from an input that the mapped function encloses."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        def allowed(row: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & mask[row, key].bool()

        function: Any = allowed
        for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
            function = torch.vmap(function, in_dims=dims)
        length = torch.arange(ids.shape[1])
        weights = function(torch.arange(ids.shape[0]), length, length).float()
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(weights @ x).tanh()
        result: Tensor = self.head(x)
        return result


class Unseen(Base):
    """Computes with its inputs where no function mode sees it."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            scale = mask * 2.0
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x).tanh() * scale[:, :, None]
        result: Tensor = self.head(x)
        return result


class NoGradLayers(Base):
    """Runs its first layers without gradients, as models of repeated cycles do."""

    def forward(self, ids: Tensor, _mask: Tensor) -> Tensor:
        x = self.embed(ids)
        with torch.no_grad():
            for layer in list(self.layers)[:2]:
                x = layer(x).tanh()
        result: Tensor = self.head(self.layers[2](x))
        return result


class PreparedLayers(Base):
    """Prepares itself in the first call after a change between training and evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.is_prepared = False

    def forward(self, ids: Tensor, _mask: Tensor) -> Tensor:
        if self.training == self.is_prepared:
            with torch.no_grad():
                torch.ones(2).sum()
            self.is_prepared = not self.training
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x).tanh() * (2 if self.is_prepared else 1)
        result: Tensor = self.head(x)
        return result


def batch(rows: int, length: int, padding: int) -> tuple[Tensor, Tensor]:
    mask = torch.ones(rows, length)
    mask[0, length - padding :] = 0
    return torch.randint(0, 11, (rows, length)), mask


def run_chain(blocks: Any, inputs: Any, *, may_replay: bool) -> Tensor:
    activations = inputs
    for block in blocks:
        call = block.call
        activations = PartialForward(call.traces, call.unit, may_replay)(activations, inputs)
    result: Tensor = activations
    return result


@pytest.mark.parametrize("may_replay", [True, False])
@pytest.mark.parametrize("kind", [DirectForward, ShapeArguments, VmapMask, Unseen, NoGradLayers])
def test_chain_equals_the_model(kind: type[Base], may_replay: bool) -> None:
    """For other rows, lengths and paddings than those of the sample, also where the shapes are equal."""
    torch.manual_seed(0)
    model = kind()
    blocks = find_blocks(model, None, batch(2, 6, 2))
    assert sum(block.name.startswith("layers.") for block in blocks) == 3
    for rows, length, padding in ((2, 6, 2), (2, 6, 0), (2, 6, 4), (1, 6, 3), (5, 6, 1), (2, 3, 1), (3, 9, 8)):
        inputs = batch(rows, length, padding)
        expected = model(*inputs)
        result = run_chain(blocks, inputs, may_replay=may_replay)
        assert torch.equal(result, expected), (rows, length, padding)
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(result.sum(), parameters, allow_unused=True)
        for one, other in zip(
            gradients, torch.autograd.grad(expected.sum(), parameters, allow_unused=True), strict=True
        ):
            assert (one is None) == (other is None)
            assert one is None or other is None or torch.equal(one, other)


class BiasLayer(nn.Module):
    """Makes a bias of the lengths of both sequences for the layers after it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.linear = nn.Parameter(torch.ones(())), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if bias is None:
            distance = torch.arange(x.shape[1])[:, None] - torch.arange(memory.shape[1])
            bias = self.scale * distance
        return x + self.linear((x @ memory.transpose(1, 2) + bias).softmax(-1) @ memory), bias


class TwoSequences(nn.Module):
    """Two sequences of tokens with lengths of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(11, WIDTH), nn.Embedding(11, WIDTH)
        self.layers = nn.ModuleList(BiasLayer() for _ in range(3))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, x, bias = self.source(source), self.target(target), None
        for layer in self.layers:
            x, bias = layer(x, memory, bias)
        result: Tensor = x
        return result


@pytest.mark.parametrize("sample", [(6, 6), (6, 4)])
def test_lengths_of_two_sequences(sample: tuple[int, int]) -> None:
    """Both lengths vary, also if they are equal in the sample."""
    torch.manual_seed(0)
    model = TwoSequences()

    def batch(rows: int, *lengths: int) -> tuple[Tensor, ...]:
        return tuple(torch.randint(0, 11, (rows, length)) for length in lengths)

    blocks = find_blocks(model, None, batch(2, *sample))
    for rows, one, other in ((2, 6, 6), (2, 6, 4), (1, 3, 7), (3, 7, 3), (2, 4, 4)):
        inputs = batch(rows, one, other)
        assert torch.equal(run_chain(blocks, inputs, may_replay=True), model(*inputs))


@pytest.mark.parametrize("may_replay", [True, False])
def test_preparation_for_evaluation(may_replay: bool) -> None:
    model, twin = PreparedLayers(), PreparedLayers()
    twin.load_state_dict(model.state_dict())
    blocks = find_blocks(model, None, batch(2, 6, 0))
    for is_training in (True, False, True, True, False, False, True):
        model.train(is_training)
        twin.train(is_training)
        for rows in (2, 3):
            inputs = batch(rows, 6, 0)
            assert torch.equal(run_chain(blocks, inputs, may_replay=may_replay), twin(*inputs))


def test_autocast_that_forward_switches_off_stays_off() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                table = x @ x.T  # would be in low precision
            y = self.parts[0](x)
            result: Tensor = self.parts[1](y) + (table @ x).sum() * torch.tanh(x @ x.T).sum()
            return result

    model, x = Mixed(), torch.randn(3, 4)
    blocks = find_blocks(model, None, x)
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(x)
        assert torch.equal(blocks[1].call(blocks[0].call(x, x), x), expected)
    assert torch.equal(blocks[1].call(blocks[0].call(x, x), x), model(x))
    with torch.autocast("cpu", enabled=False):
        assert not torch.equal(expected, model(x))
