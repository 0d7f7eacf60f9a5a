"""A correct program proves; a mutated one proves if and only if a naive interpreter can still run it."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProofError
from penstock.plan.pricing.costs import Costs
from penstock.program.actions import NONE, ONCE_KINDS, RECV_KINDS, SEND_KINDS, Action, Kind
from penstock.program.proof.proof import prove
from penstock.program.types import Program, program_from_actions
from tests.support.oracle import works
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

Orders = list[list[Action]]


@st.composite
def mutations(draw: st.DrawFn) -> tuple[Costs, Program, Program]:
    """A correct program, and the same with one to three changes."""
    case: Case = draw(cases(max_microbatches=3))
    costs = case.costs
    program = case.lowered(costs)
    orders: Orders = [list(program.actions(name)) for name in program.devices]
    for _ in range(draw(st.integers(1, 3))):
        busy = [order for order in orders if order]
        if busy:
            _mutate(draw, orders, draw(st.sampled_from(busy)), program.devices)
    return costs, program, program_from_actions(program.plan, program.devices, orders)


def _mutate(draw: st.DrawFn, orders: Orders, order: list[Action], devices: tuple[str, ...]) -> None:
    place = draw(st.integers(0, len(order) - 1))
    action = order[place]
    change = draw(st.sampled_from(["drop", "double", "swap", "move", "elsewhere", "stage", "batch", "kind", "peer"]))
    if change == "drop":
        del order[place]
    elif change == "double":
        order.insert(draw(st.integers(0, len(order))), action)
    elif change == "swap":
        other = draw(st.integers(0, len(order) - 1))
        order[place], order[other] = order[other], order[place]
    elif change == "move":
        order.insert(draw(st.integers(0, len(order) - 1)), order.pop(place))
    elif change == "elsewhere":
        target = draw(st.sampled_from(orders))
        del order[place]
        target.insert(draw(st.integers(0, len(target))), action)
    elif change == "stage":
        order[place] = action._replace(stage=max(0, action.stage + draw(st.sampled_from([-1, 1, 7]))))
    elif change == "batch" and action.microbatch != NONE:
        order[place] = action._replace(microbatch=max(0, action.microbatch + draw(st.sampled_from([-1, 1, 100]))))
    elif change == "kind":
        order[place] = _with_kind(action, draw(st.sampled_from(list(Kind))), draw(st.sampled_from(devices)))
    elif change == "peer" and action.peer:
        order[place] = action._replace(peer=draw(st.sampled_from(devices)))


def _with_kind(action: Action, kind: Kind, peer: str) -> Action:
    """The action with another kind, and a micro-batch and a peer if that needs them."""
    microbatch = NONE if kind in ONCE_KINDS else max(action.microbatch, 0)
    return Action(kind, action.stage, microbatch, (action.peer or peer) if kind in SEND_KINDS + RECV_KINDS else "")


def _proves(program: Program, costs: Costs) -> bool:
    try:
        prove(program, costs)
    except ProofError:
        return False
    return True


@reaches(works=0.003, broken=0.3)
@examples(600)
@given(mutations())
def test_proof_and_interpreter_agree(mutation: tuple[Costs, Program, Program]) -> None:
    costs, program, mutated = mutation
    assert _proves(program, costs)
    assert works(program, costs)
    still_works = works(mutated, costs)
    reach("works", still_works)
    reach("broken", not still_works)
    assert _proves(mutated, costs) == still_works
