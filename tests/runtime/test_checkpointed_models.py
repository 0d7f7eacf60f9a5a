"""Models that recompute parts of themselves in the backward train under any plan as in a single process."""

from typing import Any

import pytest
import torch

from tests.support.runtime import checkpointed
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

torch.set_num_threads(1)

PLANS = {
    "split backward": plan_of([0, 2, 5], [["d0"], ["d1"]], schedule="zb_h1"),
    "recompute": plan_of([0, 3, 5], [["d0"], ["d1"]], recompute=True),
    "remote backward": plan_of([0, 2, 5], [["d0"], ["d1"]], backward=[["d1"], ["d0"]]),
    "replicas": plan_of([0, 5], [["d0", "d1"]]),
}
CASES = [
    (kind, name)
    for kind in (*checkpointed.LAYERS, checkpointed.AROUND)
    for name in checkpointed.CHECKPOINTS
    if (kind, name) != (checkpointed.AROUND, "reentrant")  # is refused
]
_expected: dict[Any, Any] = {}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # torch's, of nested reentrant ones
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_same_bits_as_a_single_process_without_checkpoints(
    rank_pool: RankPool, plan: str, kind: str, name: str
) -> None:
    is_split = PLANS[plan].stages[0].num_replicas > 1
    noise = 0.0 if is_split else 0.1  # other random numbers than those of dropout depend on the split of rows
    num = PLANS[plan].num_microbatches
    if (kind, num, noise) not in _expected:
        _expected[kind, num, noise] = checkpointed.train_single_process(kind, checkpointed.call, num, noise)
    losses, parameters = _expected[kind, num, noise]
    for found_losses, found in rank_pool.run(2, checkpointed.train, kind, name, PLANS[plan], noise):
        pairs = [*zip(found_losses, losses, strict=True), *((found[key], parameters[key]) for key in found)]
        for one, other in pairs:
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-6) if is_split else torch.equal(one, other)
