"""Ablation: a larger search space is never worse, plans stay within theirs, and Bi-Partition's gain by hand."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from penstock.plan.types import Plan
from penstock.planners.auto.search import auto
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.uniform import uniform
from penstock.planners.problem import Problem
from penstock.planners.search_space import SearchSpace
from penstock.planners.studies.ablation import (
    EVERYTHING,
    NO_REPLICATION,
    ORDINARY,
    SETTINGS,
    Ablation,
    Setting,
    ablate,
    is_within,
)
from penstock.profile.types import Profile
from tests.support.small import equal_profile, one_host


def uneven_profile() -> Profile:
    """Two layers, F 1 and 4 s, I + W 2 and 5 s: 3 and 9 s with local backwards, 1 + 5 and 4 + 2 s with remote ones."""
    profile = equal_profile(2)
    units = tuple(
        msgspec.structs.replace(
            unit,
            times=(msgspec.structs.replace(unit.times[0], forward_s=f, input_grad_s=b / 2, weight_grad_s=b / 2),),
        )
        for unit, f, b in zip(profile.units, (1.0, 4.0), (2.0, 5.0), strict=True)
    )
    return msgspec.structs.replace(profile, units=units)


def searched(problem: Problem) -> Callable[[Setting], Plan]:
    return lambda setting: auto(problem, search_space=setting.search_space, work=60)


def by_name(ablation: Ablation) -> dict[str, float]:
    return {row.name: row.outcome.iteration_s for row in ablation.rows}


def test_rows_stay_within_their_search_spaces() -> None:
    problem = Problem(uneven_profile(), one_host(2, bandwidth=1e9), 8)
    ablation = ablate(problem, searched(problem))
    assert [row.name for row in ablation.rows] == [setting.name for setting in SETTINGS]
    seconds = by_name(ablation)
    for less in SETTINGS:
        for more in SETTINGS:
            if is_within(less.search_space, more.search_space):
                assert seconds[more.name] <= seconds[less.name]
    for row in ablation.rows:
        assert row.times_as_long is not None
        assert row.times_as_long >= 1.0
        assert row.bound_s <= row.outcome.iteration_s * (1 + 1e-9)
        for stage in row.plan.stages:
            assert row.search_space.replication or stage.num_replicas == 1
            assert row.search_space.two_cuts or not stage.has_remote_backward
            assert row.search_space.recomputation or not stage.recompute
        if row.search_space.schedule:
            assert row.plan.schedule == row.search_space.schedule


def test_bipartition_gain_by_hand() -> None:
    # 12 s of work per micro-batch; one set of cuts gives one device at least 9 s, two sets can give each 6 s.
    problem = Problem(uneven_profile(), one_host(2, bandwidth=1e9), 16)
    gain = ablate(problem, searched(problem)).bipartition
    assert gain is not None
    assert gain.one_set_s >= 16 * 9
    assert 16 * 6 <= gain.two_sets_s < 16 * 7
    assert gain.fraction == pytest.approx(1 - gain.two_sets_s / gain.one_set_s)


def test_plan_of_a_smaller_search_space_is_used_in_a_larger_one() -> None:
    """The search finds a good plan only for the ordinary pipeline."""
    profile = uneven_profile()
    problem = Problem(profile, one_host(2, bandwidth=1e9), 8)
    good, bad = balanced(problem), replace(problem, pipeline_depth=1)

    def find(setting: Setting) -> Plan:
        return good if setting.name == ORDINARY else uniform(bad)

    rows = {row.name: row for row in ablate(problem, find).rows}
    assert rows[EVERYTHING].found_with == rows[NO_REPLICATION].found_with == ORDINARY
    assert rows[EVERYTHING].plan == good
    assert rows["no recomputation"].found_with == "no recomputation"


def test_within() -> None:
    everything = SearchSpace()
    for setting in SETTINGS:
        assert is_within(setting.search_space, everything)
        assert is_within(SETTINGS[-1].search_space, setting.search_space)
        assert is_within(everything, setting.search_space) == (setting.name == EVERYTHING)
    assert not is_within(SearchSpace(schedule="gpipe"), SearchSpace(schedule="1f1b"))


def test_no_gain_without_plans_that_fit() -> None:
    problem = Problem(equal_profile(2, parameter_bytes=100), one_host(2, memory_bytes=1), 2)
    ablation = ablate(problem, lambda _: balanced(problem))
    assert ablation.bipartition is None
    assert not any(row.outcome.fits for row in ablation.rows)
