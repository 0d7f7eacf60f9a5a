"""A folded plan takes as long as the expanded one, without reductions; the search by classes beats regular grids."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.plan.pricing.pricing import price
from penstock.plan.types import on
from penstock.planners.auto.folding.fold import Fold, folds, is_symmetric
from penstock.planners.auto.moves import Moves
from penstock.planners.auto.search import search_plans
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.grids import regular_grids
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.schedules.methods.auto import best_order
from penstock.schedules.methods.pe import pe
from penstock.schedules.search.scoring import score_program
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile
from tests.support.thoroughness import examples


def _hosts(
    num_hosts: int, per_host: int, *, interface: float | None = None, memory_bytes: int | None = None
) -> Cluster:
    wire = Wire(bandwidth=8.0)
    return Cluster(
        name="hosts",
        hosts=tuple(Host(name=f"h{host}", inside=wire, interface_bandwidth=interface) for host in range(num_hosts)),
        devices=tuple(
            Device(name=f"h{host}.d{number}", host=f"h{host}", kind="k", memory_bytes=memory_bytes)
            for host in range(num_hosts)
            for number in range(per_host)
        ),
        between=Wire(bandwidth=2.0),
    )


def _check_fold(fold: Fold, seed: int) -> None:
    names = [device.name for device in fold.problem.cluster.devices]
    moves = Moves(seed, names, lambda group: on(*group))
    plan = balanced(fold.problem)
    for _ in range(12):
        plan = moves.draw(plan) or plan
    costs = price(plan, fold.problem.profile, fold.problem.cluster)
    program = pe(costs)
    expanded = fold.expand(plan)
    whole = price(expanded, fold.origin.profile, fold.origin.cluster)
    score, expected = score_program(program, costs), score_program(fold.expand_program(program, expanded), whole)
    # Interfaces are shared in steps of time, so not exactly alike.
    exact = fold.problem.cluster.hosts[0].interface_bandwidth is None
    assert score.seconds == pytest.approx(expected.seconds, rel=1e-9 if exact else 0.01)
    assert score.over_bytes == pytest.approx(expected.over_bytes, abs=2.0)
    reach("replicated", any(stage.num_replicas > 1 for stage in plan.stages))
    reach("over", score.over_bytes > 0)


def test_a_folded_plan_takes_as_long_as_the_expanded_one() -> None:
    @reaches(replicated=0.2, over=0.05, interface=0.2)
    @examples(30)
    @given(
        st.sampled_from([(2, 2), (2, 4), (4, 2), (1, 8), (8, 1), (3, 2), (2, 6)]),
        st.sampled_from([None, 3.0]),
        st.integers(1, 4),
        st.integers(0, 2**32),
    )
    def check(shape: tuple[int, int], interface: float | None, num: int, seed: int) -> None:
        # Every member has whole bytes.
        profile = equal_profile(6, cut_bytes=192, saved_bytes=384)
        cluster = _hosts(*shape, interface=interface, memory_bytes=1200)
        problem = Problem(profile, cluster, num, micro_batch_size=random.Random(seed).choice([1, 4, 12]))
        assert is_symmetric(problem)
        reach("interface", interface is not None)
        for fold in folds(problem, (2, 3, 4)):
            _check_fold(fold, seed)

    check()


def test_what_is_not_symmetric() -> None:
    profile, cluster = equal_profile(4), _hosts(2, 2)
    odd = Device(name="h1.d1", host="h1", kind="k", speed=2.0)
    moved = Device(name="h1.d1", host="h0", kind="k")
    for device in (odd, moved):
        other = Cluster(name="c", hosts=cluster.hosts, devices=(*cluster.devices[:3], device), between=cluster.between)
        assert not is_symmetric(Problem(profile, other, 2))
    assert not is_symmetric(Problem(profile, cluster, 2, pipeline_depth=2))


def test_whole_rows() -> None:
    problem = Problem(equal_profile(4), _hosts(2, 4), 2, micro_batch_size=2)
    assert {len(fold.members) for fold in folds(problem, (1, 2, 4), part_rows=False)} == {4}


def test_the_search_by_classes_is_faster_than_every_grid() -> None:
    profile = equal_profile(9, cut_bytes=2, saved_bytes=600, parameter_bytes=1000)
    problem = Problem(profile, _hosts(8, 8, memory_bytes=14_000), 4, micro_batch_size=8)
    space = SearchSpace(part_rows=False, virtual_stages=False, two_cuts=False)
    found = search_plans(problem, search_space=space, work=8)
    score = score_program(found.program, found.costs)
    assert score.over_bytes == 0
    assert space.allow(found.plan, problem.cluster)
    assert search_plans(problem, search_space=space, work=8).plan == found.plan
    for grid in regular_grids(problem, virtual_stages=False):
        assert not best_order(price(grid, profile, problem.cluster))[0] < score
