"""Any split of a batch gives the loss and the gradients of one pass over the whole batch."""

import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.reach import reach, reaches
from tests.support.runtime import token_models
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.token_models import LENGTH, Masks, Run
from tests.support.strategies import Case, cases, reach_features
from tests.support.thoroughness import examples

torch.set_num_threads(1)

ROW = st.sampled_from([(0,) * LENGTH, (0, 1, 1, 0), (1, 0, 0, 0), (1, 1, 0, 1), (1,) * LENGTH])


@st.composite
def masks(draw: st.DrawFn) -> Masks:
    """Rows with any labels ignored. One label counts at least."""
    rows = draw(st.lists(ROW, min_size=1, max_size=9))
    return (*rows, (1, 0, 0, 0))


def assert_equal(ranks: list[Run], expected: Run) -> None:
    assert {name for rank in ranks for name in rank.parameters} == set(expected.parameters)
    for rank in ranks:
        for one, other in zip(rank.losses, expected.losses, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
        for name, item in rank.parameters.items():
            torch.testing.assert_close(item, expected.parameters[name], rtol=1e-9, atol=1e-11)


@reaches(several_devices=0.1, several_stages=0.1, replicated=0.1, remote=0.1, recompute=0.1, empty=0.1, late=0.1)
@examples(20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    case=cases(max_microbatches=4).filter(lambda case: len(case.plan.devices) <= 4),
    kind=st.sampled_from(list(token_models.KINDS)),
    batches=st.lists(masks(), min_size=2, max_size=3),
    accumulated=st.integers(1, 2),
    late=st.booleans(),
)
def test_any_split_equals_one_pass(
    rank_pool: RankPool, case: Case, kind: str, batches: list[Masks], accumulated: int, late: bool
) -> None:
    if late:
        batches = [((0,) * LENGTH,) * 5, *batches]
    reach_features(case)
    reach("late", late)
    reach("empty", any((1,) * LENGTH in batch for batch in batches))
    ranks = rank_pool.run(len(case.plan.devices), token_models.train, case.plan, kind, batches, accumulated)
    expected = token_models.train_in_one_pass(kind, case.plan.num_units, batches, accumulated)
    assert_equal(ranks, expected)
