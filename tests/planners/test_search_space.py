"""Plans of auto stay within the search space, for every combination of its switches."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Plan, Replica, on
from penstock.planners.api import plan
from penstock.planners.auto.search import auto
from penstock.planners.methods.bipartition.planner import bipartition
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.planners.search_space import SearchSpace, has_virtual_stages, has_whole_rows
from penstock.planners.switches import plan_within
from penstock.profile.load import load_profile
from penstock.profile.types import Profile
from penstock.program.actions import Kind
from penstock.schedules.registry import schedule
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import Case, clusters, profiles, reach_features
from tests.support.thoroughness import examples

SWITCHES = [field.name for field in fields(SearchSpace) if field.type in (bool, "bool")]


def _plan(*groups: object) -> Plan:
    problem = Problem(equal_profile(len(groups)), one_host(4), 2, micro_batch_size=4)
    return problem.plan("test", list(range(len(groups) + 1)), groups)  # type: ignore[arg-type]


def _assert_within(plan: Plan, search_space: SearchSpace, profile: Profile, cluster: Cluster) -> None:
    """Check a plan independently of `SearchSpace.allow`."""
    if not search_space.replication:
        assert all(len(item.forward) == 1 for item in plan.stages)
    if not search_space.two_cuts:
        assert all(item.forward == item.backward for item in plan.stages)
    if not search_space.recomputation:
        assert not any(item.recompute for item in plan.stages)
    if not search_space.device_order:
        names = [device.name for device in cluster.devices]
        assert [name for name in names if name in plan.devices] == list(plan.devices)
    if not search_space.virtual_stages:
        for side in ("forward", "backward"):
            for device in plan.devices:
                has = [any(m.device == device for m in getattr(item, side)) for item in plan.stages]
                assert np.count_nonzero(np.diff([False, *has]).astype(int)) <= 2
    if not search_space.part_rows:
        for item in plan.stages:
            rows = [replica.share * plan.micro_batch_size for replica in item.forward]
            assert rows == pytest.approx([max(1, round(row)) for row in rows])
    if not search_space.split_backward:
        kinds = schedule(price(plan, profile, cluster)).kind
        assert Kind.I not in kinds
        assert Kind.W not in kinds


@reaches(several_devices=0.1, forbidden=0.1)
@examples(25)
@given(
    profiles(overheads=True),
    clusters(),
    st.integers(1, 3),
    st.fixed_dictionaries({name: st.booleans() for name in SWITCHES}),
)
def test_plans_stay_within_any_combination_of_switches(
    profile: Profile, cluster: Cluster, num: int, switches: dict[str, bool]
) -> None:
    search_space = SearchSpace(**switches)  # type: ignore[arg-type]
    problem = Problem(profile, cluster, num)
    result = auto(problem, search_space=search_space, work=20)
    assert search_space.allow(result, cluster)
    _assert_within(result, search_space, profile, cluster)
    reach_features(Case(profile, cluster, result))
    starts = data_parallel(problem), bipartition(problem)
    reach("forbidden", not all(search_space.allow(start, cluster) for start in starts))


CANNOT = {
    "data_parallel": {"replication", "part_rows"},
    "bipartition": {"two_cuts", "device_order", "part_rounds", "unequal_replicas"},
}
"""Switches to which planners cannot keep, or not on every problem."""


@reaches(several_devices=0.1, changed=0.1, refused=0.05, replicated=0.05)
@examples(25)
@given(
    profiles(),
    clusters() | clusters(fast=True),
    st.integers(1, 3),
    st.fixed_dictionaries({name: st.booleans() for name in SWITCHES}),
)
def test_every_planner_keeps_to_the_switches_or_is_refused(
    profile: Profile, cluster: Cluster, num: int, switches: dict[str, bool]
) -> None:
    search_space = SearchSpace(**switches)  # type: ignore[arg-type]
    off = {name for name, is_on in switches.items() if not is_on}
    for name in set(PLANNERS) - {"auto"}:
        try:
            result = plan(profile, cluster, num, planner=name, search_space=search_space)
        except InputError as error:
            may_be_refused = bool(off & CANNOT.get(name, set())) or "too slow" in error.what
            if not may_be_refused:
                raise
            reach("refused")
            continue
        assert result.planner == name
        _assert_within(result, search_space, profile, cluster)
        reach_features(Case(profile, cluster, result))
        reach("changed", result.stages != plan(profile, cluster, num, planner=name).stages)


def test_switches_that_change_nothing_leave_every_plan_as_it_is() -> None:
    problem = Problem(equal_profile(8, cut_bytes=1, parameter_bytes=3), one_host(4, bandwidth=100.0), 4)
    for name, planner in PLANNERS.items():
        if name != "auto":
            assert plan_within(planner, problem, SearchSpace()) == planner.plan(problem), name


def test_equal_replicas_are_not_only_single_devices() -> None:
    """A model of one layer more than divides evenly: the methods still replicate, with equal groups."""
    profile = equal_profile(3, cut_bytes=1)
    for name in ("pipedream", "dapple", "spp"):
        result = plan(
            profile, one_host(4, bandwidth=1e6), 8, planner=name, search_space=SearchSpace(unequal_replicas=False)
        )
        assert {stage.num_replicas for stage in result.stages} in ({2}, {4}), name


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb_h1", "auto_fused"])
def test_a_fixed_schedule(name: str) -> None:
    problem = Problem(equal_profile(6, cut_bytes=1), one_host(3), 4)
    assert auto(problem, search_space=SearchSpace(schedule=name), work=20).schedule == name


def test_split_schedule_contradicts_fused_backwards() -> None:
    with pytest.raises(InputError, match="schedule zb_h1 splits the backward"):
        SearchSpace(schedule="zb_h1", split_backward=False)
    assert SearchSpace(schedule="auto", split_backward=False).plan_schedule == "auto_fused"


def test_an_unknown_schedule() -> None:
    with pytest.raises(InputError, match="unknown schedule"):
        SearchSpace(schedule="2f2b")


def test_overlapping_groups_are_not_virtual_stages() -> None:
    assert not has_virtual_stages(_plan(on("d0"), on("d1")))
    assert has_virtual_stages(_plan(on("d0"), on("d1"), on("d0")))
    assert not has_virtual_stages(_plan(on("d0", "d1"), on("d1", "d2")))
    assert has_virtual_stages(_plan(on("d0", "d1"), on("d2"), on("d1", "d3")))


def test_whole_rows() -> None:
    assert has_whole_rows(_plan(on("d0", "d1"), (Replica("d0", 0.25), Replica("d1", 0.75))))
    assert not has_whole_rows(_plan(on("d0", "d1", "d2")))


def test_whole_rows_on_unequal_devices() -> None:
    cluster = load_cluster("4 x T4 @ 10 GB/s")
    profile = load_profile("gpt2", kinds=["T4"], micro_batch_size=6)
    assert has_whole_rows(auto(Problem(profile, cluster, 4), search_space=SearchSpace(part_rows=False), work=50))
