"""Other shares of the rows for the replicas of a plan."""

import msgspec

from penstock.plan import Plan, Replica, on
from penstock.plan.pricing import whole_rows


def with_equal_shares(plan: Plan) -> Plan:
    """The same plan, with equal shares for all replicas of a stage."""
    stages = []
    for stage in plan.stages:
        forward, backward = (on(*(replica.device for replica in group)) for group in (stage.forward, stage.backward))
        stages.append(msgspec.structs.replace(stage, forward=forward, backward=backward))
    return msgspec.structs.replace(plan, stages=tuple(stages))


def with_whole_rows(plan: Plan) -> Plan:
    """The same plan, with shares that give every replica whole rows if a micro-batch has enough of them."""
    stages = []
    for stage in plan.stages:
        rows = whole_rows([replica.share for replica in stage.forward], plan.micro_batch_size)
        if rows is not None:
            forward, backward = (
                tuple(
                    Replica(replica.device, count / plan.micro_batch_size)
                    for replica, count in zip(group, rows, strict=True)
                )
                for group in (stage.forward, stage.backward)
            )
            stage = msgspec.structs.replace(stage, forward=forward, backward=backward)  # noqa: PLW2901
        stages.append(stage)
    return msgspec.structs.replace(plan, stages=tuple(stages))
