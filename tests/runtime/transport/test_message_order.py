"""Over a backend without numbers of messages, as NCCL is: every plan runs there too, with the same numbers."""

from collections.abc import Iterator
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.runtime.test_random_plans import compare
from tests.support.reach import reaches
from tests.support.runtime.comparison import check, keeps_every_order
from tests.support.runtime.failing_ranks import delay_forward, different_batches, lose_rank, select_unsupported_backend
from tests.support.runtime.forkserver import Start
from tests.support.runtime.grid import Extent, cluster_of, plans
from tests.support.runtime.message_order import NAME
from tests.support.runtime.models import KINDS, profile_of
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.training import Job, train_all
from tests.support.runtime.user_models import different_plans, evaluate_between_steps, plan_of
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def strict() -> Iterator[RankPool]:
    """Ranks over a backend that matches messages by their order."""
    made = RankPool(backend=NAME)
    yield made
    made.close()


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("kind", list(KINDS))
def test_plans_of_planners(strict: RankPool, kind: str, num_ranks: int) -> None:
    profile, cluster = profile_of(kind), cluster_of(num_ranks)
    jobs = [Job(kind, plan, profile, cluster, num_rows=(13, 9)) for plan in plans(kind, num_ranks, Extent.FEW)]
    results = strict.run(num_ranks, train_all, jobs)
    for number, job in enumerate(jobs):
        check(job, [ranks[number] for ranks in results], exact=keeps_every_order(job))


@reaches(several_devices=0.1, several_stages=0.1, replicated=0.1, remote=0.1, recompute=0.1, tied=0.1)
@examples(10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(case=cases(max_microbatches=4).filter(lambda case: len(case.plan.devices) <= 4), num_rows=st.integers(1, 13))
def test_random_plans(strict: RankPool, case: Case, num_rows: int) -> None:
    compare(strict, case, num_rows)


def test_batches_that_differ_between_ranks(strict: RankPool) -> None:
    plan = plan_of([0, 2, 3], [["d0"], ["d1"]], num_microbatches=2)
    (_, first), (_, second) = strict.outcomes(2, different_batches, plan, [[(6, 4), (6, 8)], [(6, 4), (6, 4)]])
    assert (first[0], second[0]) == ("MismatchError", "MismatchError")


def test_a_rank_that_does_not_answer_in_time(strict: RankPool) -> None:
    (_, _), (well, second) = strict.outcomes(2, delay_forward)
    assert not well
    assert second[0] == "RuntimeTimeout"
    assert "rank 1 (d1), step 0, 1RECV_F0@d0 (micro-batch 0, with rank 0): timed out after 1 s" in second[1]


def test_plans_that_differ_between_ranks(strict: RankPool) -> None:
    plans = [plan_of([0, 3, 7], [["d0"], ["d1"]]), plan_of([0, 4, 7], [["d0", "d1"], ["d1"]])]
    (_, first), (_, second) = strict.outcomes(2, different_plans, plans)
    for kind, told, _ in (first, second):
        assert kind == "MismatchError"
        assert "disagree on the plan" in told


@pytest.mark.parametrize("kind", ["gpt", "vgg"])
def test_evaluation_between_steps(strict: RankPool, kind: str) -> None:
    num_units = len(KINDS[kind].model())
    plan = plan_of([0, 2, 4, num_units], [["d0"], ["d1"], ["d0"]], backward=[["d0"], ["d0"], ["d0"]])
    expected = evaluate_between_steps(None, kind)
    for losses in strict.run(2, evaluate_between_steps, plan, kind):
        for one, other in zip(losses, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-5)


def test_a_rank_that_ends(start: Start) -> None:
    first, second = start(partial(lose_rank, backend=NAME), 2)
    assert (first.wait(30), second.wait(30)) == (1, 3)
    assert "Last status of each rank:" in first.stderr()


def test_a_backend_that_does_not_send_from_the_device(rank_pool: RankPool) -> None:
    found = rank_pool.run(1, select_unsupported_backend, "cuda:0")[0]
    assert "the model is on cuda:0, but torch.distributed was initialized with gloo, which does not send" in found
    assert "init_process_group with nccl" in found
