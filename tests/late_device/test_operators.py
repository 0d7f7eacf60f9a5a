"""Operators on the device give the results and gradients of the CPU, to the bit."""

import pytest

from tests.support.late_device import PACES, Pace, Settings
from tests.support.late_device.operators import compare_operators
from tests.support.runtime.rank_pool import RankPool

USED_BY_MODELS = [
    "add",
    "addmm",
    "bmm",
    "cat",
    "chunk",
    "clamp",
    "cumsum",
    "div",
    "einsum",
    "exp",
    "expand",
    "gather",
    "index_add",
    "index_put",
    "index_select",
    "layer_norm",
    "linalg.norm",
    "log_softmax",
    "masked_fill",
    "matmul",
    "max",
    "mean",
    "mul",
    "nn.functional.avg_pool2d",
    "nn.functional.batch_norm",
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv_transpose2d",
    "nn.functional.cross_entropy",
    "nn.functional.embedding",
    "nn.functional.gelu",
    "nn.functional.group_norm",
    "nn.functional.interpolate",
    "nn.functional.layer_norm",
    "nn.functional.linear",
    "nn.functional.max_pool2d",
    "nn.functional.mse_loss",
    "nn.functional.nll_loss",
    "nn.functional.pad",
    "nn.functional.relu",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.silu",
    "nn.functional.unfold",
    "norm",
    "pow",
    "roll",
    "scatter_add",
    "sigmoid",
    "softmax",
    "sort",
    "split",
    "sqrt",
    "stack",
    "std",
    "sub",
    "sum",
    "tanh",
    "topk",
    "transpose",
    "tril",
    "unbind",
    "unique",
    "var",
    "where",
]


@pytest.mark.parametrize("pace", PACES)
def test_operators_of_models(late_pool: RankPool, pace: Pace, thorough: bool) -> None:
    pytest.importorskip("expecttest")  # torch's samples import it
    names = None if thorough and pace == "eager" else USED_BY_MODELS
    settings = Settings(pace=pace, max_delay_us=50)
    ((num, different),) = late_pool.run(1, compare_operators, names, 3, settings)
    assert different == []
    assert num > (600 if names is None else 60)
