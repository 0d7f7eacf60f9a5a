"""From the solver's order to a program.

`lower` posts receives a few messages ahead, to bound the buffers, and steps in an order of its own. Here nothing waits
for a receive: all are posted at the start, those of fresh parameters right behind the device's last forward. That is
early enough, as parameters return after a backward of the last micro-batch, and so after all its forwards everywhere.
"""

from penstock.plan.pricing import Costs
from penstock.planners.exact.cp_order import Job
from penstock.program import RECV_KINDS, Action, Kind, Program, program_from_actions
from penstock.program.lowering import lower


def order_program(costs: Costs, orders: tuple[tuple[Job, ...], ...]) -> Program:
    """The compute program of an order; its steps are left to lowering."""
    names = [device.name for device in costs.cluster.devices]
    lists = [[Action(kind, stage, number) for kind, stage, number in order if kind < Kind.STEP] for order in orders]
    return program_from_actions(costs.plan, names, lists)


def lowered_order(costs: Costs, orders: tuple[tuple[Job, ...], ...]) -> Program:
    """An order with its communication, receives posted as early as can be, and steps in the order given."""
    program = lower(order_program(costs, orders), costs)
    steps = [[job[1] for job in order if job[0] == Kind.STEP] for order in orders]
    names = list(program.devices)
    lists = [list(program.actions(name)) for name in names]
    returns = {action.stage: action for actions in lists for action in actions if action.kind == Kind.SEND_P}
    lowered = []
    for device, actions in enumerate(lists):
        early = [action for action in actions if Kind.RECV_F <= action.kind < Kind.RECV_P]
        late = [action for action in actions if action.kind == Kind.RECV_P]
        turn = {stage: place for order in steps for place, stage in enumerate(order)}
        late.sort(key=lambda action: turn[action.stage])
        moved = (Kind.STEP, Kind.SEND_P, *RECV_KINDS)
        rest = [action for action in actions if action.kind not in moved]
        forwards = [place for place, action in enumerate(rest) if action.kind == Kind.F]
        after = forwards[-1] + 1 if forwards else 0
        closing = []
        for stage in steps[device]:
            closing.append(Action(Kind.STEP, stage))
            if stage in returns:
                closing.append(returns[stage])
        lowered.append([*early, *rest[:after], *late, *rest[after:], *closing])
    return program_from_actions(costs.plan, names, lowered)
