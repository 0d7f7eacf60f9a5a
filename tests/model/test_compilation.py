"""A model that is compiled as a whole is refused at once; compiled layers run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.profiler.measurement import measure


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


COMPILE: list[Callable[[nn.Module], Any]] = [lambda model: torch.compile(model, backend="eager"), in_place]


@pytest.mark.parametrize("compile_model", COMPILE)
def test_a_compiled_model_is_refused(compile_model: Callable[[nn.Module], Any]) -> None:
    model, x = compile_model(Model()), torch.randn(2, 4)
    with pytest.raises(InputError, match=r"Model is compiled as a whole \(torch.compile\)") as raised:
        find_blocks(model, None, x)
    assert "for layer in model.layers: layer.compile()" in raised.value.hint
    with pytest.raises(InputError, match="compiled as a whole"):
        measure(model, x, lambda out: out.sum(), seconds=0)
    with pytest.raises(InputError, match="Sequential is compiled as a whole") as raised:
        find_blocks(compile_model(nn.Sequential(nn.Linear(4, 4))))
    assert "for layer in model.children()" in raised.value.hint


def test_compiled_layers_run() -> None:
    model, x = Model(), torch.randn(2, 4)
    expected = model(x)
    for layer in model.layers:
        layer.compile(backend="eager")
    activations = x
    for block in find_blocks(model, None, x):
        activations = block.call(activations, x)
    assert torch.equal(activations, expected)
