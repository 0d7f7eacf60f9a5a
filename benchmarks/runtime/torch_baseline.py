"""A rank's program in plain torch: the same blocks and the same messages, in the same order.

The difference to Penstock's executor is the executor's own cost. A split backward is that of
torch.distributed.pipelining. Supports one stage per rank and one tensor between stages; the backward of the first stage
is fused.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from benchmarks.runtime.workloads import Workload
from penstock import Action, Kind


class TorchBaseline:
    """One rank of two."""

    def __init__(
        self, workload: Workload, cut: int, actions: list[Action], cut_shape: tuple[int, ...], group: Any
    ) -> None:
        self._rank = dist.get_rank()
        self._workload = workload
        blocks = list(workload.model())
        self.stage = nn.Sequential(*(blocks[:cut] if self._rank == 0 else blocks[cut:]))
        self._actions = [action for action in actions if action.kind != Kind.STEP]
        self._cut_shape = cut_shape
        self._group = group

    def iteration(self, inputs: Tensor, targets: Tensor, num_microbatches: int) -> None:
        """Run one iteration without the optimizer step; both ranks get the loss."""
        peer, is_last = 1 - self._rank, self._rank == 1
        xs, ys = inputs.chunk(num_microbatches), targets.chunk(num_microbatches)
        arrived: dict[int, tuple[Tensor, Any]] = {}
        stage_inputs: dict[int, Tensor] = {}
        outputs: dict[int, Tensor] = {}
        grads: dict[int, Tensor | None] = {}
        pending_weights: dict[int, Any] = {}
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
                    stage_inputs[number] = x.requires_grad_()
                    outputs[number] = self._workload.loss(self.stage(x), ys[number]) * (1 / num_microbatches)
                    total += outputs[number].detach()
                else:
                    outputs[number] = self.stage(xs[number])
            elif action.kind in (Kind.B, Kind.I):
                grads[number] = None
                if not is_last:
                    grads[number], work = arrived.pop(number)
                    work.wait()
                if action.kind == Kind.B:
                    outputs.pop(number).backward(grads.pop(number))  # type: ignore[no-untyped-call]
                else:
                    weights = self.stage.parameters()
                    pending_weights[number] = stage_backward_input(
                        [outputs.pop(number)], None, [stage_inputs[number]], weights
                    )[1]
            elif action.kind == Kind.W:
                stage_backward_weight(self.stage.parameters(), pending_weights.pop(number))
            else:
                tensor = outputs[number].detach() if action.kind == Kind.SEND_F else stage_inputs.pop(number).grad
                assert tensor is not None
                sent.append((dist.isend(tensor, peer, self._group, number), tensor))
        if loss_comes is None:
            sent.append((dist.isend(total, peer, self._group, num_microbatches), total))
        else:
            loss_comes.wait()
        for work, _ in sent:
            work.wait()
