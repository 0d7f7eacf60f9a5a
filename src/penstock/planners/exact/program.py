"""Programs from the solver's orders.

`lower` bounds the buffers, so that messages may wait for a receive, and chooses its own order of optimizer steps. Here
every message can be received as soon as it is sent, returned weights when the device's last forward has run. That is
early enough, because weights return after a backward of the last micro-batch, and so after all its forwards on all
devices.
"""

from penstock.plan.pricing import Costs
from penstock.planners.exact.cp_order import Job
from penstock.program import RECV_KINDS, Action, Kind, Program, program_from_actions
from penstock.program.lowering import order_messages, place_messages


def order_program(costs: Costs, orders: tuple[tuple[Job, ...], ...]) -> Program:
    """The compute program of an order; lowering adds the optimizer steps."""
    names = [device.name for device in costs.cluster.devices]
    fused = {Kind.I: Kind.B, Kind.W: None}
    lists = []
    for order in orders:
        passes = [job for job in order if job[0].is_pass]
        kinds = [fused.get(kind, kind) if stage in costs.restrictions.fused else kind for kind, stage, _ in passes]
        pairs = zip(kinds, passes, strict=True)
        lists.append([Action(kind, stage, number) for kind, (_, stage, number) in pairs if kind is not None])
    return program_from_actions(costs.plan, names, lists)


def lowered_order(costs: Costs, orders: tuple[tuple[Job, ...], ...]) -> Program:
    """The lowered program of an order, with unlimited buffers and steps in the given order."""
    program = place_messages(order_program(costs, orders), costs)
    steps = [[job[1] for job in order if job[0] == Kind.STEP] for order in orders]
    names = list(program.devices)
    lists = [list(program.actions(name)) for name in names]
    returns = {action.stage: action for actions in lists for action in actions if action.kind == Kind.SEND_P}
    lowered = []
    for device, actions in enumerate(lists):
        early = [action for action in actions if action.kind.is_recv and action.kind is not Kind.RECV_P]
        late = [action for action in actions if action.kind == Kind.RECV_P]
        step_position = {stage: position for order in steps for position, stage in enumerate(order)}
        late.sort(key=lambda action: step_position[action.stage])
        remote_backward = (Kind.STEP, Kind.SEND_P, *RECV_KINDS)
        rest = [action for action in actions if action.kind not in remote_backward]
        forwards = [position for position, action in enumerate(rest) if action.kind == Kind.F]
        after = forwards[-1] + 1 if forwards else 0
        closing = []
        for stage in steps[device]:
            closing.append(Action(Kind.STEP, stage))
            if stage in returns:
                closing.append(returns[stage])
        lowered.append([*early, *rest[:after], *late, *rest[after:], *closing])
    program = program_from_actions(costs.plan, names, lowered)
    return order_messages(program, costs) if costs.messages.is_overlapped else program
