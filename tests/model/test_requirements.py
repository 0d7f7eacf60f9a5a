"""Models that are compiled as a whole, or skip layers at random, are refused with what to do instead."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks
from penstock.model.requirements import require_separate_launches
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


class Config:
    def __init__(self, layerdrop: float) -> None:
        self.encoder_layerdrop = layerdrop


class Skipping(nn.Module):
    """Holds the probability in its config, and reads a random number whatever it is."""

    def __init__(self, layerdrop: float, *, in_module: bool) -> None:
        super().__init__()
        self.config = Config(layerdrop)
        if in_module:
            self.layerdrop = layerdrop
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < self.config.encoder_layerdrop:
                continue
            x = layer(x)
        return x


class Unused(nn.Module):
    """Has such an attribute in its config, but calls every layer."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config(0.5)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](x) + 0.1 * torch.rand_like(x))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layerdrop", [0.001, 0.5, 1.0])
@pytest.mark.parametrize(("in_module", "place"), [(False, "config.encoder_layerdrop"), (True, "layerdrop")])
def test_the_attribute_is_named(layerdrop: float, in_module: bool, place: str, seed: int) -> None:
    torch.manual_seed(seed)
    with pytest.raises(
        InputError, match=f"skips layers at random in training: model.{place} is {layerdrop:g}"
    ) as error:
        find_blocks(Skipping(layerdrop, in_module=in_module), None, torch.randn(3, 4))
    assert error.value.hint.startswith("Build the model with encoder_layerdrop=0; ")
    assert f"model.{place} to 0" in error.value.hint


def test_without_skipping() -> None:
    x = torch.randn(3, 4)
    for model in (Skipping(0.0, in_module=True), Skipping(0.5, in_module=True).eval(), Unused()):
        assert len(find_blocks(model, None, x)) == len(model.layers)


def test_another_error_stays() -> None:
    class Fails(Skipping):
        def forward(self, x: Tensor) -> Tensor:
            return self.layers[0](x) if x.shape[0] < 6 else self.layers[9](x)  # type: ignore[no-any-return]

    with pytest.raises(InputError, match="cannot detect the blocks"):
        find_blocks(Fails(0.0, in_module=True), None, torch.randn(3, 4))


GRAPHS: list[Callable[[nn.Module], Any]] = [
    lambda layer: layer.compile(mode="reduce-overhead"),
    lambda layer: layer.compile(options={"triton.cudagraphs": True}),
]


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # when torch imports its compiler
@pytest.mark.parametrize("compile_layer", GRAPHS)
def test_layers_that_replay_whole_graphs_are_refused(compile_layer: Callable[[nn.Module], Any]) -> None:
    model = Model()
    model.layers[0].compile()
    require_separate_launches(model)
    compile_layer(model.layers[1])
    with pytest.raises(InputError, match=r"layer 'layers\.1' is compiled for whole-graph replay") as caught:
        require_separate_launches(model)
    assert "layer.compile()" in caught.value.hint
    model = Model()
    model.layers[2] = torch.compile(model.layers[2], mode="reduce-overhead")  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"layer 'layers\.2'"):
        require_separate_launches(model)
