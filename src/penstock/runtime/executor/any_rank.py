"""Whether something is so on any rank."""

from typing import Any

import torch.distributed as dist
from torch import Tensor

from penstock.dist import translate_errors
from penstock.runtime.transport import Transport


def any_rank(flag: Tensor, *, group: Any, transport: Transport) -> bool:
    """Return whether a number is above zero on any rank. Collective.

    Args:
        flag: The number of this rank, on any device.
        group: The control group.
        transport: Waits for the collective.
    """

    def describe() -> str:
        return f"rank {dist.get_rank(group)}, comparing with other ranks whether gradients are finite"

    found = flag.to("cpu", copy=True)
    with translate_errors(describe):
        work = dist.all_reduce(found, op=dist.ReduceOp.MAX, group=group, async_op=True)
    transport.wait(work, describe)
    return bool(found.item() > 0)
