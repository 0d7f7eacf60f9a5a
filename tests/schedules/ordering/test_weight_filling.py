"""The compiled filling does exactly what the plain one does."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.program.actions import Action, Kind
from penstock.schedules.ordering.clock import with_split
from penstock.schedules.ordering.weight_filling import fill_weights
from penstock.schedules.registry import schedule
from tests.support.plain_weight_filling import fill_weights_plainly
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


@reaches(deferred=0.1)
@examples(200)
@given(cases(), st.integers(1, 12), st.sampled_from(["1f1b", "gpipe", "interleaved"]))
def test_equal_to_the_plain_one(case: Case, most_kept: int, name: str) -> None:
    costs = case.costs
    track = schedule(with_split(costs, False), name)
    filled = fill_weights(track, costs, most_kept)
    assert filled.same_actions(fill_weights_plainly(track, costs, most_kept))
    reach("deferred", any(is_deferred(list(filled.actions(device))) for device in filled.devices))


def is_deferred(order: list[Action]) -> bool:
    """Whether a weight gradient is not right behind its input gradient."""
    return any(
        action.kind == Kind.W
        and (before.kind, before.stage, before.microbatch) != (Kind.I, action.stage, action.microbatch)
        for before, action in pairwise(order)
    )
