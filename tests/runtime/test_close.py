"""Closing a pipeline gives back everything that making it took."""

import pytest
import torch

from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.repeated_pipelines import make_and_close
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

PLANS = {
    "chain": plan_of([0, 2, 4], [["d0"], ["d1"]]),
    "replicated": plan_of([0, 2, 4], [["d0", "d1"], ["d1"]]),
}


@pytest.mark.parametrize("name", list(PLANS))
def test_a_process_that_makes_many_pipelines_holds_no_more(rank_pool: RankPool, name: str) -> None:
    for early, late in rank_pool.run(2, make_and_close, PLANS[name], 9, (3, 9)):
        assert early[:-1] == late[:-1]
        assert early.mapped_bytes == 0
