"""List scheduling: rules that differ in unneeded room share one run."""

from hypothesis import given

from penstock.schedules.methods.auto import rooms
from penstock.schedules.search.greedy import Greedy, Rules
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@reaches(shared=0.1, not_shared=0.1)
@examples(100)
@given(cases())
def test_a_shared_run_is_what_scheduling_anew_gives(case: Case) -> None:
    costs = case.costs
    greedy = Greedy(costs)
    programs = []
    for room in rooms(costs, greedy.kept):
        for rules in (Rules(True, room), Rules(False, room, 0.0), Rules(True, room, later_first=False)):
            shared, anew = greedy.timed(rules), Greedy(costs).timed(rules)
            assert (shared is None) == (anew is None)
            if shared is not None and anew is not None:
                assert shared[0].same_actions(anew[0])
                assert shared[1] == anew[1]
                programs.append(shared[0])
    num_runs = len({id(program) for program in programs})
    reach("shared", num_runs < len(programs))
    reach("not_shared", num_runs > 3)
