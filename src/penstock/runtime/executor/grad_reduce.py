"""Gradient reductions over the ranks that hold a parameter: one message for each dtype, asynchronous."""

from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.device import copy_to_device
from penstock.dist import Describe, translate_errors
from penstock.runtime.executor.protocols import PendingReduction
from penstock.runtime.sharding import GradScatter, ShardedGroup
from penstock.runtime.tensors import grad_dtype
from penstock.runtime.transport import Transport

Reductions = Mapping[tuple[bool, int], tuple[Any, Sequence[nn.Parameter]]]
"""By whether it is a tie, and number of the stage or tie: the process group and the parameters."""


class GroupGradReducer:
    """`GradReducer` over process groups.

    Args:
        reductions: The reductions that this rank takes part in.
        transport: Waits for the collectives.
        sharded: The sharded stages among them.
    """

    def __init__(self, reductions: Reductions, transport: Transport, sharded: Iterable[ShardedGroup] = ()) -> None:
        self._reductions = reductions
        self._sharded = {(False, item.number): item for item in sharded}
        self._transport = transport
        self._earlier: dict[nn.Parameter, Tensor] = {}
        """Gradients of earlier iterations."""

    def begin(self) -> None:
        """Set the gradients of earlier iterations aside: they are reduced already, and must not be reduced again."""
        self._earlier = {}
        stepped = [item for group in self._sharded.values() for item in group.owned.values()]
        others = [item for key, (_, items) in self._reductions.items() if key not in self._sharded for item in items]
        for parameter in (*others, *stepped):
            if parameter.grad is not None:
                self._earlier[parameter] = parameter.grad
                parameter.grad = None

    def start(self, *, is_tie: bool, number: int, describe: Describe) -> PendingReduction:
        """Start a reduction."""
        sharded = self._sharded.get((is_tie, number))
        if sharded is not None:
            return GradScatter(sharded, self._transport, self._earlier, describe)
        group, parameters = self._reductions[is_tie, number]
        return GradReduction(parameters, group, self._transport, self._earlier, describe)


class GradReduction:
    """One reduction in progress.

    Behind the gradients, one number for each parameter counts the ranks that have a gradient. A parameter without a
    gradient on any rank must stay without one, because optimizers distinguish that from a zero gradient.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: Any,
        transport: Transport,
        earlier: Mapping[nn.Parameter, Tensor],
        describe: Describe,
    ) -> None:
        self._transport = transport
        self._earlier = earlier
        self._describe = describe
        self.ended_s = 0.0
        self._buckets: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in parameters:
            by_dtype.setdefault(grad_dtype(parameter), []).append(parameter)
        for dtype, bucket in by_dtype.items():
            grads = [torch.zeros_like(item, dtype=dtype) if item.grad is None else item.grad for item in bucket]
            has_grad = torch.tensor([float(item.grad is not None) for item in bucket], dtype=dtype)
            flat = torch.cat([*(grad.reshape(-1) for grad in grads), copy_to_device(has_grad, grads[0].device)])
            with translate_errors(describe):
                work = dist.all_reduce(flat, group=group, async_op=True)
            self._buckets.append((bucket, flat, work))

    def finish(self) -> None:
        """Block until the sums have arrived, and add them to the gradients of earlier iterations."""
        earlier = self._earlier
        for bucket, flat, work in self._buckets:
            self._transport.wait_device(work, self._describe)
            sizes = [item.numel() for item in bucket]
            *sums, counts = torch.split(flat, [*sizes, len(bucket)])
            for item, total, count in zip(bucket, sums, counts.tolist(), strict=True):
                grad = total.view(item.shape) if count else None
                if grad is not None and item in earlier:
                    grad = earlier[item].add_(grad)
                item.grad = earlier.get(item) if grad is None else grad
        self.ended_s = perf_counter()
