"""A rank's program with nothing but torch: the same blocks, the same messages, in the same order.

What Penstock's executor takes beyond this is its own. Input and weight gradients apart are those of torch's own
pipelining. For one tensor between stages, one stage a rank; the first one's backward is whole.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from benchmarks.runtime.workloads import Subject
from penstock import Action, Kind


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
        """One iteration up to the optimizer's step; the loss comes to both ranks."""
        peer, is_last = 1 - self._rank, self._rank == 1
        xs, ys = inputs.chunk(num_microbatches), targets.chunk(num_microbatches)
        arrived: dict[int, tuple[Tensor, Any]] = {}
        given: dict[int, Tensor] = {}
        made: dict[int, Tensor] = {}
        grads: dict[int, Tensor | None] = {}
        left: dict[int, Any] = {}
        sent: list[tuple[Any, Tensor]] = []
        total = torch.zeros(())
        loss_comes = None if is_last else dist.irecv(total, peer, self._group, num_microbatches)
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
                    total += made[number].detach()
                else:
                    made[number] = self.stage(xs[number])
            elif action.kind in (Kind.B, Kind.I):
                grads[number] = None
                if not is_last:
                    grads[number], work = arrived.pop(number)
                    work.wait()
                if action.kind == Kind.B:
                    made.pop(number).backward(grads.pop(number))  # type: ignore[no-untyped-call]
                else:
                    weights = self.stage.parameters()
                    left[number] = stage_backward_input([made.pop(number)], None, [given[number]], weights)[1]
            elif action.kind == Kind.W:
                stage_backward_weight(self.stage.parameters(), left.pop(number))
            else:
                tensor = made[number].detach() if action.kind == Kind.SEND_F else given.pop(number).grad
                assert tensor is not None
                sent.append((dist.isend(tensor, peer, self._group, number), tensor))
        if loss_comes is None:
            sent.append((dist.isend(total, peer, self._group, num_microbatches), total))
        else:
            loss_comes.wait()
        for work, _ in sent:
            work.wait()
