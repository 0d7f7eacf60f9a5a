"""A rank's program with nothing but torch: the same blocks, the same messages, in the same order.

What Penstock's executor takes beyond this is its own. For a whole backward (B), one tensor between segments, one
segment a rank.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock import Action, Kind
from runtime.subjects import Subject


class ByHand:
    """One rank of two."""

    def __init__(
        self, subject: Subject, cut: int, actions: list[Action], cut_shape: tuple[int, ...], group: Any
    ) -> None:
        self._rank = dist.get_rank()
        self._subject = subject
        blocks = list(subject.model())
        self.stage = nn.Sequential(*(blocks[:cut] if self._rank == 0 else blocks[cut:]))
        self._actions = [action for action in actions if action.kind != Kind.STEP]
        self._cut_shape = cut_shape
        self._group = group

    def iteration(self, inputs: Tensor, targets: Tensor, num_microbatches: int) -> None:
        """One iteration up to the optimizer's step."""
        peer, is_last = 1 - self._rank, self._rank == 1
        xs, ys = inputs.chunk(num_microbatches), targets.chunk(num_microbatches)
        arrived: dict[int, tuple[Tensor, Any]] = {}
        given: dict[int, Tensor] = {}
        made: dict[int, Tensor] = {}
        sent: list[tuple[Any, Tensor]] = []
        for action in self._actions:
            number = action.microbatch
            if action.kind in (Kind.RECV_F, Kind.RECV_B):
                buffer = torch.empty(self._cut_shape)
                arrived[number] = buffer, dist.irecv(buffer, peer, self._group, number)
            elif action.kind == Kind.F:
                if is_last:
                    x, work = arrived.pop(number)
                    work.wait()
                    given[number] = x.requires_grad_()
                    made[number] = self._subject.loss(self.stage(x), ys[number]) * (1 / num_microbatches)
                else:
                    made[number] = self.stage(xs[number])
            elif action.kind == Kind.B:
                if is_last:
                    made.pop(number).backward()  # type: ignore[no-untyped-call]
                else:
                    grad, work = arrived.pop(number)
                    work.wait()
                    made.pop(number).backward(grad)  # type: ignore[no-untyped-call]
            else:
                tensor = made[number].detach() if action.kind == Kind.SEND_F else given.pop(number).grad
                assert tensor is not None
                sent.append((dist.isend(tensor, peer, self._group, number), tensor))
        for work, _ in sent:
            work.wait()
