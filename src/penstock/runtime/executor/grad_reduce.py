"""Summing gradients over the ranks that hold a parameter, in one message a type, while other work goes on."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Tell, failing_in_words
from penstock.runtime.transport import Mail


class Reduction:
    """One sum under way, over the ranks of a group.

    Behind the gradients travels for each parameter whether there is one: a parameter that nobody has a gradient for
    must stay without, as optimizers tell that from zero.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: Any, tell: Tell) -> None:
        self._tell = tell
        self.ended_s = 0.0
        self._buckets: list[tuple[list[nn.Parameter], Tensor, Any]] = []
        by_type: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in parameters:
            by_type.setdefault(parameter.dtype, []).append(parameter)
        for replicas in by_type.values():
            grads = [torch.zeros_like(item) if item.grad is None else item.grad for item in replicas]
            there = torch.tensor([float(item.grad is not None) for item in replicas], dtype=grads[0].dtype)
            flat = torch.cat([*(grad.reshape(-1) for grad in grads), there.to(grads[0].device)])
            with failing_in_words(tell):
                work = dist.all_reduce(flat, group=group, async_op=True)
            self._buckets.append((replicas, flat, work))

    def finish(self, mail: Mail, before: Mapping[nn.Parameter, Tensor]) -> None:
        """Wait, and put the sums in place, added to what was there `before` this iteration."""
        for replicas, flat, work in self._buckets:
            mail.wait_on_device(work, self._tell)
            sizes = [item.numel() for item in replicas]
            *sums, there = torch.split(flat, [*sizes, len(replicas)])
            for item, total, count in zip(replicas, sums, there.tolist(), strict=True):
                grad = total.view(item.shape) if count else None
                if grad is not None and item in before:
                    grad = before[item].add_(grad)
                item.grad = before.get(item) if grad is None else grad
        self.ended_s = perf_counter()
