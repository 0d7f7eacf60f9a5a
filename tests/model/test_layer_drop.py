"""Models that skip layers at random in training are refused with the attribute to set."""

import pytest
import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.blocks import find_blocks


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
