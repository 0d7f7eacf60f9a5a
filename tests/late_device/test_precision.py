"""Training in bf16 and fp16 on the asynchronous device: the numbers of the CPU under the same recipe."""

from dataclasses import replace

import pytest
import torch

from tests.runtime.precision.test_training import EXACT
from tests.support.late_device import NAME, Settings
from tests.support.late_device.training import train_on_device
from tests.support.runtime.comparison import check
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job

torch.set_num_threads(1)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_same_numbers_as_on_the_cpu(late_pool: RankPool, precision: str) -> None:
    settings = (Settings(pace="lazy"), Settings(pace="random", seed=1), Settings(pace="random", num_queues=8, seed=2))
    plans = (EXACT["cut"], EXACT["remote"], EXACT["recomputed"])
    jobs = [Job("mlp", plan, None, None, precision=precision, device=NAME) for plan in plans]
    results = late_pool.run(2, train_on_device, list(zip(jobs, settings, strict=True)))
    for number, job in enumerate(jobs):
        check(replace(job, device="cpu"), [ranks[number] for ranks in results], exact=True)
