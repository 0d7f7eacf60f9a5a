"""Every test model by plans of every kind on the asynchronous device: the numbers of the CPU, and no race.

A part of the grid runs by default, the whole one with `pytest --thorough`.
"""

from dataclasses import replace
from itertools import cycle

import pytest
import torch

from tests.support.late_device import NAME, Settings
from tests.support.late_device.training import train_on_device
from tests.support.runtime.comparison import check, keeps_every_order
from tests.support.runtime.grid import Extent, cluster_of, plans
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job

torch.set_num_threads(1)

SETTINGS = [
    Settings(pace="lazy"),
    Settings(pace="random", seed=1),
    Settings(pace="eager", num_queues=1),
    Settings(pace="random", seed=2, num_queues=8),
    Settings(pace="lazy", num_queues=8),
]
FEW = 2
"""Plans of each cell by default."""


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("kind", list(KINDS))
def test_same_numbers_as_on_the_cpu(late_pool: RankPool, kind: str, num_ranks: int, thorough: bool) -> None:
    found = plans(kind, num_ranks, Extent.WHOLE if thorough else Extent.FEW)
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    jobs = [Job(kind, plan, profile, cluster, device=NAME) for plan in (found if thorough else found[:FEW])]
    runs = list(zip(jobs, cycle(SETTINGS), strict=False))
    results = late_pool.run(num_ranks, train_on_device, runs)
    for number, job in enumerate(jobs):
        check(replace(job, device="cpu"), [ranks[number] for ranks in results], exact=keeps_every_order(job))
