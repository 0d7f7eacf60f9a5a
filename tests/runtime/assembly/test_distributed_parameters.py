"""Models whose parameters another library has divided over ranks are refused by name."""

import pytest
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from penstock.errors import InputError
from penstock.runtime.pipeline import Pipeline
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import mean_square, plan_of


def distribute() -> str:
    """Create a pipeline of a model with a DTensor, and return the error."""
    mesh = init_device_mesh("cpu", (1,))
    last = nn.Linear(4, 4)
    last.weight = nn.Parameter(distribute_tensor(last.weight.detach(), mesh, [Shard(0)]))
    model = nn.Sequential(nn.Linear(4, 4), last)
    with pytest.raises(InputError) as caught:
        Pipeline(model, plan_of([0, 2], [["d0"]]), mean_square)
    return str(caught.value)


def test_a_dtensor_is_refused(rank_pool: RankPool) -> None:
    [text] = rank_pool.run(1, distribute)
    assert "1.weight is a DTensor" in text
    assert "before fully_shard" in text
