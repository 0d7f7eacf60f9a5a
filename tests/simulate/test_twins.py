"""The compiled simulator equals the plain one, bit for bit, on everything that a program can hold."""

import numpy as np
from hypothesis import given

from penstock.program.proof.proof import prove
from penstock.simulate.compiled import simulate
from penstock.simulate.reference import simulate_plainly
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@examples(400)
@given(cases())
def test_equal_to_the_bit(case: Case) -> None:
    costs = case.costs
    lowered = case.lowered(costs)
    timeline = simulate(prove(lowered, costs))
    start, end = simulate_plainly(lowered, costs)
    assert np.array_equal(timeline.start_s, start)
    assert np.array_equal(timeline.end_s, end)
