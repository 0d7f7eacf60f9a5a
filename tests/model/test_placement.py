"""Moving a model to a device or another type."""

import pytest
import torch
from torch import nn

from penstock.model import move_model


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("overwrite", [False, True])
def test_shared_parameters_stay_shared(overwrite: bool) -> None:
    # With `overwrite`, torch makes a new parameter for each use, as for devices that other packages register.
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
    try:
        model = Tied()
        move_model(model, torch.device("cpu"), torch.bfloat16)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
    assert model.head.weight is model.embed.weight
    assert {item.dtype for item in model.parameters()} == {torch.bfloat16}
    assert model.norm.running_mean is not None
    assert model.norm.running_mean.dtype == torch.bfloat16
    assert model.norm.num_batches_tracked is not None
    assert model.norm.num_batches_tracked.dtype == torch.int64


def test_meta_tensors_stay() -> None:
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    move_model(model, torch.device("cpu"), torch.float16)
    assert model.weight.is_meta
    assert model.weight.dtype == torch.float16
