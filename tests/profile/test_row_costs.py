"""Costs over the rows: what was measured, straight between, and no fall beyond; and lines of least squares."""

import itertools
import random
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.profile.limits import MAX_SECONDS
from penstock.profile.row_costs import Line, affine, fit
from penstock.profile.types import Profile, Sizes, Times, Unit
from tests.support.reach import reach, reaches

values = st.floats(0, 1e9)


def times(rows: int, forward: float, kind: str = "k", step: float = 0.0) -> Times:
    return Times(
        kind=kind,
        micro_batch_size=rows,
        forward_s=forward,
        input_grad_s=2 * forward,
        weight_grad_s=3 * forward,
        step_s=step,
    )


def sizes(rows: int, cut: int, pending: int | None = None) -> Sizes:
    return Sizes(micro_batch_size=rows, cut_bytes=cut, saved_bytes=2 * cut, pending_bytes=pending)


def profile_of(*units: tuple[tuple[Sizes, ...], tuple[Times, ...]]) -> Profile:
    made = [Unit(name=f"u{i}", parameter_bytes=10 * i, sizes=s, times=t) for i, (s, t) in enumerate(units)]
    return Profile(name="p", micro_batch_size=1, units=tuple(made))


def test_one_point_is_proportional() -> None:
    line = affine([(4, 2.0)])
    assert (line.base, line.per_row) == (0.0, 0.5)
    assert (line.at(8), line.at(1), line.at(0.5)) == (4.0, 0.5, 0.25)


@reaches(inexact=0.03)
@given(st.integers(1, 2**40), values)
def test_one_point_comes_back_to_the_bit(rows: int, value: float) -> None:
    assert affine([(rows, value)]).at(rows) == value
    reach("inexact", value / rows * rows != value)  # what slope times rows would give


def test_two_points() -> None:
    assert affine([(1, 3.0), (3, 7.0)]) == Line(1.0, 2.0)


@reaches(base=0.1, slope=0.1, both=0.1)
@given(st.integers(1, 1000), st.integers(1, 1000), values, values)
def test_two_points_on_an_allowed_line_come_back(first: int, apart: int, base: float, slope: float) -> None:
    points = [(rows, base + slope * rows) for rows in (first, first + apart)]
    line = affine(points)
    for rows, value in points:
        assert line.at(rows) == pytest.approx(value, rel=1e-12, abs=1e-300)
    reach("base", line.base)
    reach("slope", line.per_row)
    reach("both", line.base and line.per_row)


def test_a_negative_base_becomes_a_line_through_the_origin() -> None:
    # the free line is 3 rows - 1; through the origin the best slope is (1*2 + 2*5) / (1 + 4)
    line = affine([(1, 2.0), (2, 5.0)])
    assert (line.base, line.per_row) == (0.0, 2.4)


def test_a_falling_line_becomes_the_mean() -> None:
    assert affine([(1, 4.0), (2, 3.0), (3, 2.0)]) == Line(3.0, 0.0)


def test_the_same_rows_twice() -> None:
    line = affine([(2, 4.0), (2, 6.0)])
    assert (line.base, line.per_row) == (0.0, 2.5)


@reaches(free=0.03, no_base=0.05, flat=0.05, off_the_line=0.1)
@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0, 100)), min_size=2, max_size=6))
def test_no_allowed_line_nearby_is_better(points: list[tuple[int, float]]) -> None:
    def error(base: float, per_row: float) -> float:
        return sum((base + per_row * rows - value) ** 2 for rows, value in points)

    line = affine(points)
    assert line.base >= 0
    assert line.per_row >= 0
    best = error(line.base, line.per_row)
    for base_change, slope_change in itertools.product((-0.1, -0.001, 0, 0.001, 0.1), repeat=2):
        nearby = error(max(line.base + base_change, 0.0), max(line.per_row + slope_change, 0.0))
        assert best <= nearby * (1 + 1e-9) + 1e-9
    reach("free", line.base and line.per_row)
    reach("no_base", not line.base and line.per_row)
    reach("flat", line.base and not line.per_row)
    reach("off_the_line", best > 1e-3)


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(1, -1.0)], [(1, float("nan"))], [(1, 1.0), (2, float("inf"))]])
def test_unfit_points(points: list[tuple[int, float]]) -> None:
    with pytest.raises(InputError):
        affine(points)


def test_a_profile_measured_once() -> None:
    profile = profile_of(((sizes(8, 100),), (times(8, 0.1, step=0.5),)), ((sizes(8, 0, 7),), (times(8, 0.3),)))
    model = fit(profile, "k")
    costs = model.at(8)
    assert costs.forward_s.tolist() == [0.1, 0.3]
    assert costs.input_grad_s.tolist() == [0.2, 0.6]
    assert costs.weight_grad_s.tolist() == [3 * 0.1, 3 * 0.3]
    assert costs.cut_bytes.tolist() == [100, 0]
    assert costs.saved_bytes.tolist() == [200, 0]
    assert costs.pending_bytes.tolist() == [200, 7]
    assert costs.parameter_bytes.tolist() == [0, 10]
    # the step does not depend on the rows; everything else halves
    half = model.at(4)
    assert half.step_s.tolist() == costs.step_s.tolist() == [0.5, 0.0]
    assert half.forward_s.tolist() == [0.05, 0.15]
    assert half.cut_bytes.tolist() == [50, 0]
    assert half.parameter_bytes.tolist() == [0, 10]
    assert model.at(24).forward_s.tolist() == pytest.approx([0.3, 0.9])


def test_each_kind_has_its_own_times() -> None:
    measured = (times(1, 1.0, "slow", 0.2), times(1, 0.25, "fast"), times(3, 5.0, "slow", 0.4), times(3, 0.5, "fast"))
    # the second unit lists the same measurements in another order
    profile = profile_of(((sizes(2, 8),), measured), ((sizes(2, 8),), measured[::-1]))
    slow, fast = fit(profile, "slow"), fit(profile, "fast")
    assert (slow.kind, fast.kind) == ("slow", "fast")
    # slow: half of the way from 1 to 5; fast: 0.125 + 0.125 rows
    assert slow.at(2).forward_s.tolist() == pytest.approx([3.0, 3.0])
    assert fast.at(2).forward_s.tolist() == pytest.approx([0.375, 0.375])
    assert slow.at(2).step_s.tolist() == pytest.approx([0.3, 0.3])
    assert slow.at(2).cut_bytes.tolist() == fast.at(2).cut_bytes.tolist() == [8, 8]


def test_units_may_have_sizes_for_other_rows() -> None:
    profile = profile_of(
        ((sizes(1, 10), sizes(3, 20)), (times(1, 1.0),)),
        ((sizes(7, 70),), (times(1, 1.0),)),
        ((sizes(3, 20), sizes(1, 10)), (times(1, 1.0),)),
    )
    model = fit(profile, "k")
    assert model.at(1).cut_bytes.tolist() == pytest.approx([10, 10, 10])
    assert model.at(2).cut_bytes.tolist() == pytest.approx([15, 20, 15])
    assert model.at(5).cut_bytes.tolist() == pytest.approx([30, 50, 30])
    assert model.at(0.5).cut_bytes.tolist() == pytest.approx([7.5, 5, 7.5])


def test_layers_together_are_the_layers_one_by_one() -> None:
    rng = random.Random(1)
    made = [
        (
            tuple(sizes(rows, rng.randrange(1000)) for rows in rng.choice([(1, 2, 4, 8), (8, 1), (3,)])),
            tuple(times(rows, rng.random() * rng.choice([0, 1, 9])) for rows in (2, 1, 8)),
        )
        for _ in range(50)
    ]
    together, single = fit(profile_of(*made), "k"), [fit(profile_of(unit), "k") for unit in made]
    for rows in (0.3, 1, 1.5, 3, 7, 8, 20):
        assert together.at(rows).forward_s.tolist() == [model.at(rows).forward_s[0] for model in single]
        assert together.at(rows).cut_bytes.tolist() == [model.at(rows).cut_bytes[0] for model in single]


def test_an_unknown_kind() -> None:
    profile = profile_of(((sizes(1, 1),), (times(1, 1.0),)))
    with pytest.raises(InputError, match="no times for 'H100'") as caught:
        fit(profile, "H100")
    assert caught.value.hint == "It was measured on: k."


@pytest.mark.parametrize("rows", [0, -1, float("nan"), float("inf")])
def test_rows_must_be_above_zero(rows: float) -> None:
    model = fit(profile_of(((sizes(1, 1),), (times(1, 1.0),))), "k")
    with pytest.raises(InputError, match="number of rows must be positive"):
        model.at(rows)


def test_the_largest_numbers_do_not_overflow() -> None:
    entries = tuple(times(rows, MAX_SECONDS / 3) for rows in (1, 2**40))
    profile = profile_of(((sizes(1, 2**59), sizes(2**40, 2**59)), entries))
    costs = fit(msgspec.json.decode(msgspec.json.encode(profile), type=Profile), "k").at(2**40)
    assert np.isfinite(costs.forward_s).all()
    assert costs.cut_bytes.tolist() == pytest.approx([2**59])


def test_ten_thousand_units() -> None:
    one = ((sizes(1, 1), sizes(4, 9)), (times(1, 1.0), times(4, 2.0)))
    model = fit(profile_of(*[one] * 10_000), "k")
    began = time.process_time()
    for rows in range(1, 11):
        model.at(rows)
    # well under a millisecond each
    assert time.process_time() - began < 0.2


@reaches(between=0.2, below=0.05, above=0.05, rising=0.05)
@given(st.lists(st.floats(0, 10), min_size=2, max_size=5), st.permutations(range(5)), st.floats(0.1, 20))
def test_measured_sizes_cost_what_was_measured(seconds: list[float], order: list[int], rows: float) -> None:
    known = [2 * (number + 1) for number in range(len(seconds))]
    entries = [times(size, value) for size, value in zip(known, seconds, strict=True)]
    shuffled = tuple(entries[number] for number in order if number < len(entries))
    model = fit(profile_of(((sizes(1, 1),), shuffled)), "k")

    def at(size: float) -> float:
        return float(model.at(size).forward_s[0])

    assert [at(size) for size in known] == seconds
    if known[0] <= rows <= known[-1]:
        reach("between")
        assert at(rows) == pytest.approx(float(np.interp(rows, known, seconds)), rel=1e-9, abs=1e-12)
        return
    # Beyond, it neither falls nor starts below zero.
    reach("below" if rows < known[0] else "above")
    assert at(rows) >= 0
    further = rows / 2 if rows < known[0] else 2 * rows
    least, most = sorted((rows, further))
    assert at(least) <= at(most) * (1 + 1e-12)
    reach("rising", at(least) < at(most))
