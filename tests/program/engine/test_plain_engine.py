"""The engine without compiled code is the compiled one, for programs that end and for those that get stuck."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.program.dependencies import Dependencies, find_dependencies
from penstock.program.engine.execution import execute, execute_plainly
from penstock.program.job_table import find_jobs
from penstock.program.seconds import durations
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, reach_features
from tests.support.thoroughness import examples


def _block(data: st.DataObject, dependencies: Dependencies) -> Dependencies:
    """The same dependencies, but some transfers wait for something that never happens."""
    num_needs = dependencies.num_needs.copy()
    for transfer in data.draw(st.lists(st.integers(0, max(0, len(num_needs) - 1)), max_size=2)):
        num_needs[transfer : transfer + 1] += 1
    return dependencies._replace(num_needs=num_needs)


@reaches(ends=0.2, stuck=0.2, shared=0.1, replicated=0.1)
@examples(200)
@given(cases(), st.data())
def test_both_engines_are_equal_to_the_bit(case: Case, data: st.DataObject) -> None:
    costs = case.costs
    program = case.lowered(costs)
    jobs = find_jobs(program, costs)
    dependencies = _block(data, find_dependencies(program, costs, jobs))
    seconds = durations(program, costs, jobs.replica)
    compiled, plain = (
        execute(program, dependencies, costs, seconds),
        execute_plainly(program, dependencies, costs, seconds),
    )
    for of_compiled, of_plain in zip(compiled, plain, strict=True):
        assert np.array_equal(of_compiled, of_plain, equal_nan=True)
    reach("ends" if (plain.counter == program.offsets[1:]).all() else "stuck")
    reach_features(case)
