"""The compiled filling does exactly what the plain one does."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.schedules.ordering.clock import with_split
from penstock.schedules.ordering.weight_filling import fill_weights
from penstock.schedules.registry import schedule
from tests.support.plain_weight_filling import fill_weights_plainly
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@examples(200)
@given(cases(), st.integers(1, 12), st.sampled_from(["1f1b", "gpipe", "interleaved"]))
def test_equal_to_the_plain_one(case: Case, most_kept: int, name: str) -> None:
    costs = case.costs
    track = schedule(with_split(costs, False), name)
    assert fill_weights(track, costs, most_kept).same_actions(fill_weights_plainly(track, costs, most_kept))
