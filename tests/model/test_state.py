"""The state of a model is restored, also after a failure."""

import pytest
import torch
from torch import nn

from penstock.model.state import preserve_state


def test_state_is_restored_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    model[2].eval()
    model[0].weight.grad = torch.ones(2, 2)
    grad = model[0].weight.grad
    mean = model[1].running_mean
    random = torch.get_rng_state()

    def spoil() -> None:
        with preserve_state(model):
            torch.autograd.backward(model(torch.randn(3, 2)).sum())
            model.train()
            model[1].running_mean = torch.full((2,), 9.0)
            raise KeyError

    with pytest.raises(KeyError):
        spoil()
    assert model[0].weight.grad is grad
    assert torch.equal(grad, torch.ones(2, 2))
    assert model[0].bias.grad is None
    assert model[1].running_mean is mean
    assert torch.equal(mean, torch.zeros(2))  # type: ignore[arg-type]
    assert model[1].num_batches_tracked == 0
    assert [module.training for module in model] == [True, True, False]
    assert torch.equal(torch.get_rng_state(), random)
