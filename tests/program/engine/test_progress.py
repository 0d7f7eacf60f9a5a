"""Progress without compiled code is that of the compiled engine, for programs that end and for those that get stuck."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.program.dependencies import Dependencies, find_dependencies
from penstock.program.engine.execution import execute
from penstock.program.engine.progress import find_progress_plainly
from penstock.program.job_table import find_jobs
from tests.support.paths import REPOSITORY
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


def _block(data: st.DataObject, dependencies: Dependencies) -> Dependencies:
    """The same dependencies, but some transfers wait for something that never happens."""
    num_needs = dependencies.num_needs.copy()
    for transfer in data.draw(st.lists(st.integers(0, max(0, len(num_needs) - 1)), max_size=2)):
        num_needs[transfer : transfer + 1] += 1
    return dependencies._replace(num_needs=num_needs)


@reaches(ends=0.2, stuck=0.2)
@examples(200)
@given(cases(), st.data())
def test_plain_progress_is_that_of_the_compiled_engine(case: Case, data: st.DataObject) -> None:
    costs = case.costs
    program = case.lowered(costs)
    dependencies = _block(data, find_dependencies(program, costs, find_jobs(program, costs)))
    progress = find_progress_plainly(program, dependencies)
    run = execute(program, dependencies, costs, np.zeros(program.num_actions))
    reach("ends" if (progress.counter == program.offsets[1:]).all() else "stuck")
    assert progress.counter.tolist() == run.counter.tolist()
    assert progress.has_begun.tolist() == (~np.isnan(run.begun)).tolist()


def test_a_small_program_is_proved_without_loading_numba() -> None:
    script = """
import sys
from penstock.program.lowering import lower
from penstock.program.proof import prove
from penstock.schedules import schedule
from tests.support.strategies import two_stages
case = two_stages(num_microbatches=4, schedule_name="gpipe")
costs = case.costs
prove(lower(schedule(costs), costs), costs)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, check=True)
