"""The next best plan: the fastest of the other planners, and none if that would take long."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.plan.shapes import Shape
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.methods.uniform import uniform
from penstock.planners.problem import Problem
from penstock.planners.registry import PLANNERS
from penstock.planners.studies.alternatives import ALTERNATIVE_PLANNERS, Alternative, next_best
from penstock.planners.studies.quick_planners import is_quick
from penstock.profile.types import Profile
from penstock.simulate.evaluation import evaluate
from tests.support.planner_cases import cluster_of, profile_of
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles
from tests.support.thoroughness import examples


def _with_memory(cluster: Cluster, memory_bytes: int) -> Cluster:
    devices = tuple(msgspec.structs.replace(device, memory_bytes=memory_bytes) for device in cluster.devices)
    return msgspec.structs.replace(cluster, devices=devices)


def test_by_hand() -> None:
    # Layers of 3, 3, 3 and 9 seconds, transfers next to free: uniform has stages of 6 and 12, balanced of 9 and 9.
    profile, cluster = profile_of([(1, 1, 1)] * 3 + [(3, 3, 3)]), cluster_of([1.0, 1.0])
    problem = Problem(profile, cluster, 4)
    best = next_best(problem, uniform(problem))
    assert best is not None
    alone = evaluate(balanced(problem), profile, cluster).timeline.iteration_s
    assert best.seconds <= alone
    # Data parallelism halves all rows: 4 x 18 / 2 seconds, and nothing can be faster than all work over all devices.
    assert best.seconds == pytest.approx(36, rel=1e-4)


def test_alternatives_fit_into_memory() -> None:
    # 10 bytes of parameters per layer, four times with gradients and Adam's state: 80 on each of two devices, and 160
    # for the whole model on every one.
    profile = equal_profile(4, parameter_bytes=10)
    wires = one_host(2, bandwidth=1e9)
    roomy = Problem(profile, _with_memory(wires, 1000), 4)
    alternative = next_best(roomy, balanced(roomy))
    # All work over both devices, 4 x 12 / 2 s, is less than the pipeline's (4 + 1) x 6.
    assert alternative is not None
    assert alternative.name == "data_parallel + 1f1b"
    assert alternative.seconds == pytest.approx(24.0, rel=1e-6)
    # With less memory only the pipeline is left; it is the plan at hand, or an alternative to another one.
    cramped = Problem(profile, _with_memory(wires, 100), 4)
    assert next_best(cramped, balanced(cramped)) is None
    assert next_best(cramped, data_parallel(cramped)) == Alternative("uniform + 1f1b", 30.0)
    hopeless = Problem(profile, _with_memory(wires, 10), 4)
    assert next_best(hopeless, data_parallel(hopeless)) is None


def test_next_best_is_the_fastest_that_differs() -> None:
    @reaches(several=0.3, differ=0.1)
    @examples(40)
    @given(profiles(max_units=5), clusters(max_devices=4), st.integers(1, 4))
    def check(profile: Profile, cluster: Cluster, num: int) -> None:
        problem = Problem(profile, cluster, num)
        than = balanced(problem)
        expected: list[float] = []
        for name in ALTERNATIVE_PLANNERS:
            plan = PLANNERS[name].plan(replace(problem, schedule=PLANNERS[name].schedule))
            if plan.stages != than.stages or plan.schedule != than.schedule:
                expected.append(evaluate(plan, profile, cluster).timeline.iteration_s)
        alternative = next_best(problem, than)
        assert (alternative.seconds if alternative else None) == (min(expected) if expected else None)
        reach("several", len(expected) > 1)
        reach("differ", expected and min(expected) < max(expected))

    check()


def test_shape_of_the_problem_is_ignored() -> None:
    profile, cluster = profile_of([(1, 1, 1)] * 4), cluster_of([1.0, 1.0])
    problem = Problem(profile, cluster, 4, schedule="zb_v", shape=Shape.V, num_chunks=2)
    alternative = next_best(problem, balanced(problem))
    assert alternative is not None
    assert alternative == next_best(Problem(profile, cluster, 4), balanced(problem))


def test_large_problems_have_no_alternative() -> None:
    small = Problem(equal_profile(4), one_host(2), 4)
    assert all(is_quick(name, small) for name in ALTERNATIVE_PLANNERS)
    assert not is_quick("auto", small)
    long = replace(small, num_microbatches=10_000)
    assert not any(is_quick(name, long) for name in ALTERNATIVE_PLANNERS)
    assert next_best(long, balanced(small)) is None
    wide = Problem(equal_profile(40), one_host(40), 4)
    assert [name for name in ALTERNATIVE_PLANNERS if is_quick(name, wide)] == ["uniform", "balanced", "data_parallel"]
    assert is_quick("spp", replace(wide, pipeline_depth=20))
