"""Random plans on the asynchronous device, with random delays, lazily, and with few hardware queues."""

import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.support.late_device import PACES, Settings
from tests.support.late_device.random_plans import compare
from tests.support.reach import reach, reaches
from tests.support.runtime.rank_pool import RankPool
from tests.support.strategies import Case, cases, reach_features
from tests.support.thoroughness import examples

torch.set_num_threads(1)

SETTINGS = st.builds(
    Settings, pace=st.sampled_from(PACES), seed=st.integers(0, 1000), num_queues=st.sampled_from([1, 8, 32])
)


@reaches(several_devices=0.1, several_stages=0.1, replicated=0.1, remote=0.1, recompute=0.1, tied=0.1, exact=0.1)
@examples(60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(
    case=cases(max_microbatches=4).filter(lambda case: len(case.plan.devices) <= 4),
    num_rows=st.integers(1, 13),
    settings=SETTINGS,
)
def test_random_plans_give_the_numbers_of_the_cpu(
    late_pool: RankPool, case: Case, num_rows: int, settings: Settings
) -> None:
    reach_features(case)
    reach("exact", compare(late_pool, case, num_rows, settings))
