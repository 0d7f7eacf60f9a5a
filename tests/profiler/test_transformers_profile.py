"""Weight gradients of Hugging Face's GPT-2, whose matrix products are torch.addmm."""

import pytest
import torch
from torch import nn

from penstock.profiler.measurement import measure
from tests.support.runtime.split_gradients import check

pytorch_utils = pytest.importorskip("transformers.pytorch_utils")


def test_conv1d_of_gpt2_is_deferred() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(pytorch_utils.Conv1D(48, 16), nn.GELU(), pytorch_utils.Conv1D(16, 48))
    check(model, torch.randn(3, 5, 16))
    found = measure(model, torch.randn(3, 5, 16), lambda out: out.square().mean(), seconds=0)
    assert found.units[2].times[0].weight_grad_s > 0
