"""Micro-batch sizes: the best over all sizes, affine times by hand, and notes about the times."""

import math
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.plan.types import Plan
from penstock.planners.methods.balanced import balanced
from penstock.planners.methods.data_parallel import data_parallel
from penstock.planners.methods.uniform import uniform
from penstock.planners.outcome import outcome_of
from penstock.planners.problem import Problem
from penstock.planners.studies.microbatches import Basis, basis_of, candidate_sizes, choose_microbatches
from penstock.profile.types import Profile, Sizes, Times, Unit
from tests.support.reach import reach, reaches
from tests.support.small import equal_profile, one_host
from tests.support.strategies import clusters, profiles
from tests.support.thoroughness import examples


def affine_profile(base_s: float, per_row_s: float, *, saved_bytes: int = 0) -> Profile:
    """Two layers whose F, I and W each take base + per row * rows, measured at 2 and 8 rows."""

    def times(rows: int) -> Times:
        part = base_s + per_row_s * rows
        return Times(kind="k", micro_batch_size=rows, forward_s=part, input_grad_s=part, weight_grad_s=part)

    sizes = tuple(Sizes(micro_batch_size=rows, cut_bytes=0, saved_bytes=saved_bytes * rows) for rows in (2, 8))
    units = tuple(
        Unit(name=name, parameter_bytes=0, sizes=sizes, times=tuple(map(times, (2, 8)))) for name in ("a", "b")
    )
    return Profile(name="affine", micro_batch_size=2, units=units)


def test_by_hand() -> None:
    # Two stages, 1F1B: (M + 1) * 3 * (base + per_row * 16 / M), with base 1 and 1 per row:
    # M = 1: 102, 2: 81, 4: 75, 8: 81, 16: 102.
    choice = choose_microbatches(affine_profile(1.0, 1.0), one_host(2), 16, balanced)
    sizes = {size.num_microbatches: size.outcome.iteration_s for size in choice.sizes if size.outcome}
    by_hand = {1: 102.0, 2: 81.0, 4: 75.0, 8: 81.0, 16: 102.0}
    assert sizes == pytest.approx({num: by_hand[num] for num in sizes})
    assert (choice.best.num_microbatches, choice.best.micro_batch_size) == (4, 4)
    for size in choice.sizes:  # sizes that were not planned cannot be better
        assert size.bound_s <= by_hand[size.num_microbatches] + 1e-9
        if size.outcome is None:
            assert size.bound_s >= 75.0
    assert choice.notes == ()


def test_memory_excludes_large_sizes() -> None:
    # 1F1B's first stage keeps 2 micro-batches: 2 * rows bytes; one of 16 rows is one, and keeps 16.
    # With a base of 100 s, few micro-batches are faster.
    profile = affine_profile(100.0, 1.0, saved_bytes=1)
    free = choose_microbatches(profile, one_host(2), 16, balanced)
    assert free.best.num_microbatches == 1
    tight = choose_microbatches(profile, one_host(2, memory_bytes=8), 16, balanced)
    assert (tight.best.micro_batch_size, tight.best.num_microbatches) == (4, 4)
    nothing = choose_microbatches(profile, one_host(2, memory_bytes=0), 16, balanced)
    assert nothing.best.outcome is not None
    assert not nothing.best.outcome.fits
    assert nothing.best.micro_batch_size == 1


@reaches(several=0.1, differ=0.1)
@examples(40)
@given(profiles(), clusters(max_devices=3), st.integers(1, 24))
def test_the_best_is_the_least_over_all_sizes(profile: Profile, cluster: Cluster, batch: int) -> None:
    choice = choose_microbatches(profile, cluster, batch, balanced)
    assert [size.micro_batch_size for size in choice.sizes] == [
        rows for rows in range(1, batch + 1) if batch % rows == 0
    ]
    every = [
        outcome_of(balanced(problem), profile, cluster).iteration_s
        for problem in (
            Problem(profile, cluster, batch // size.micro_batch_size, micro_batch_size=size.micro_batch_size)
            for size in choice.sizes
        )
    ]
    assert choice.best.outcome is not None
    assert choice.best.outcome.iteration_s <= min(every) * (1 + 1e-9)
    assert choice.best in choice.sizes
    reach("several", len(every) > 2)
    reach("differ", min(every) < max(every) * (1 - 1e-9))


def test_no_device_is_left_with_less_than_a_row() -> None:
    def plan_one(problem: Problem) -> Plan:
        """All four devices if a micro-batch has too few rows for them, else one device."""
        return (
            data_parallel(problem) if problem.rows_per_microbatch < 4 else uniform(replace(problem, pipeline_depth=1))
        )

    choice = choose_microbatches(equal_profile(1), one_host(4), 16, plan_one)
    assert choice.best.micro_batch_size >= 4
    assert [size.outcome.iteration_s for size in choice.sizes if size.outcome] == pytest.approx([12.0] * 2 + [48.0] * 3)
    assert [size.micro_batch_size for size in choice.sizes if size.has_starved_replica] == [1, 2]
    forced = choose_microbatches(equal_profile(1), one_host(4), 2, data_parallel)
    assert "less than one row" in forced.notes[-1]


@pytest.mark.parametrize(
    ("rows", "basis"), [(2, Basis.MEASURED), (4, Basis.BETWEEN), (1, Basis.BEYOND), (16, Basis.BEYOND)]
)
def test_basis(rows: int, basis: Basis) -> None:
    assert basis_of(affine_profile(1.0, 1.0), rows) is basis


def test_notes() -> None:
    assert basis_of(equal_profile(1), 1) is Basis.MEASURED
    assert basis_of(equal_profile(1), 2) is Basis.PROPORTIONAL
    one_size = choose_microbatches(equal_profile(2), one_host(2), 8, balanced)
    assert one_size.best.num_microbatches == 8  # proportional: the more the better
    assert "one micro-batch size only (1 rows)" in one_size.notes[0]
    beyond = choose_microbatches(affine_profile(100.0, 1.0), one_host(1), 64, balanced)
    assert beyond.best.micro_batch_size == 64
    assert "2 to 8 rows; those for 64 rows are extrapolated" in beyond.notes[0]

    def computed(rows: int) -> Profile:
        return msgspec.structs.replace(affine_profile(100.0, 1.0), name=f"for {rows}")

    exact = choose_microbatches(computed(2), one_host(1), 64, balanced, profile_at=computed)
    assert exact.notes == ()
    assert {size.basis for size in exact.sizes} == {Basis.COMPUTED}
    assert exact.best.plan is not None
    assert exact.best.plan.profile.name == "for 64"


@reaches(several=0.05, as_many_as_allowed=0.02, too_small=0.05)
@given(st.integers(1, 10**6), st.integers(2, 12))
def test_candidate_sizes(batch: int, most: int) -> None:
    sizes = candidate_sizes(batch, most)
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= most
    assert all(batch % rows == 0 and batch // rows <= 4096 for rows in sizes)
    assert sizes[-1] == batch
    smallest = next(rows for rows in range(math.ceil(batch / 4096), batch + 1) if batch % rows == 0)
    assert sizes[0] == smallest
    reach("several", len(sizes) > 2)
    reach("as_many_as_allowed", len(sizes) == most)
    reach("too_small", smallest > 1)


@reaches(every=0.05, fewer=0.2, too_small=0.05)
@given(st.sampled_from([1, 2, 12, 60, 720, 4097, 5040, 8190, 9240, 12_288]), st.integers(2, 12))
def test_every_size_or_those_nearest_to_equal_ratios(batch: int, most: int) -> None:
    every = [rows for rows in range(1, batch + 1) if batch % rows == 0 and batch // rows <= 4096]
    sizes = candidate_sizes(batch, most)
    if len(every) <= most:
        assert sizes == every
        reach("every")
        return
    ratio = every[-1] / every[0]
    targets = [every[0] * ratio ** (step / (most - 1)) for step in range(most)]

    def distance(rows: int, target: float) -> float:
        return abs(math.log(rows / target))

    nearest = [min(distance(rows, target) for rows in every) for target in targets]
    for target, least in zip(targets, nearest, strict=True):
        assert min(distance(rows, target) for rows in sizes) == pytest.approx(least, abs=1e-9)
    for rows in sizes:
        assert any(
            distance(rows, target) == pytest.approx(least, abs=1e-9)
            for target, least in zip(targets, nearest, strict=True)
        )
    reach("fewer")
    reach("too_small", every[0] > 1)


def test_invalid_global_batch_size() -> None:
    with pytest.raises(InputError, match=r"global batch size \(0\) must be at least 1"):
        candidate_sizes(0)
    with pytest.raises(InputError, match="must be at least 1 and at most 1,099,511,627,776"):
        candidate_sizes(2**40 + 1)
    assert candidate_sizes(2**40)[-1] == 2**40
