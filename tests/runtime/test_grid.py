"""Every test model by every planner on one to four ranks: the numbers of the plain reference in a single process.

`pytest --thorough` also combines every planner with every schedule, which takes some minutes more.
"""

from collections.abc import Callable

import pytest
import torch

from tests.support.runtime.comparison import check, keeps_every_order
from tests.support.runtime.grid import RANKS, Extent, cluster_of, plans
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train_all

torch.set_num_threads(1)


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_same_numbers_as_a_single_process(
    rank_pool: RankPool,
    kind: str,
    num_ranks: int,
    thorough: bool,
    record_property: Callable[[str, object], None],
) -> None:
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    extent = Extent.WHOLE if thorough else Extent.EVERY_PLANNER
    jobs = [Job(kind, plan, profile, cluster) for plan in plans(kind, num_ranks, extent)]
    record_property(f"measured plans of {kind} on {num_ranks}", len(jobs))
    results = rank_pool.run(num_ranks, train_all, jobs)
    for number, job in enumerate(jobs):
        check(job, [ranks[number] for ranks in results], exact=keeps_every_order(job))


def test_the_grid_has_everything_in_it(thorough: bool) -> None:
    """Two of its cells suffice; making the plans of all cells takes a minute more."""
    cells = [(kind, num) for kind in KINDS for num in RANKS] if thorough else [("vgg", 3), ("mlp", 2)]
    made = [(kind, num, plan) for kind, num in cells for plan in plans(kind, num)]
    stages = [stage for _, _, plan in made for stage in plan.stages]
    assert any(stage.has_remote_backward for stage in stages)
    assert any(stage.recompute for stage in stages)
    assert any(stage.num_replicas > 1 for stage in stages)
    shared = [plan for kind, _, plan in made if kind == "vgg" and any(s.num_replicas > 1 for s in plan.stages)]
    assert len(shared) > (5 if thorough else 3)
    assert any(len({stage.num_replicas for stage in plan.stages}) > 1 for _, _, plan in made)
    assert any(plan.num_stages > num for _, num, plan in made)
    profiles = {kind: profile_of(kind) for kind in KINDS}
    exact = [keeps_every_order(Job(kind, plan, profiles[kind], cluster_of(num))) for kind, num, plan in made]
    least, most = (20, len(exact) - 10) if thorough else (10, len(exact) - 3)
    assert least < sum(exact) < most
