"""The loss of a batch on every rank: the parts of all replicas of the last stage, summed in one order."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from penstock.device import HostCopy, is_accelerator
from penstock.errors import InputError, MismatchError
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.loss import SUMS, Reduction
from penstock.runtime.transport import Transport

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""A part is sent as the index of its dtype in this list, its value, which a double holds exactly, and its count."""


class LossExchange:
    """Exchanges the parts of the loss.

    Args:
        layout: The layout of the plan.
        rank: This rank.
        num_ranks: Number of ranks, including those that the plan does not use.
        transport: Sends the parts.
    """

    def __init__(self, layout: Layout, rank: int, num_ranks: int, transport: Transport) -> None:
        self._last = len(layout.stages) - 1
        self._owners = layout.stages[-1].forward
        self._rank = rank
        self._num_ranks = num_ranks
        self._transport = transport
        self._pending: Callable[[], None] | None = None
        """Sends this rank's part of the loss, which is on its way to the host."""

    def sender(self, iteration: Iteration) -> Callable[[Tensor], None]:
        """Return the function that sends this rank's part to all other ranks."""

        def send(part: Tensor) -> None:
            iteration.own_loss = part
            if part.dtype not in DTYPES:
                raise InputError(
                    f"the loss has dtype {part.dtype}", hint="The loss must be a real floating-point number."
                )
            self._pending = partial(self._send_part, iteration, HostCopy(part))
            if not is_accelerator(part.device):
                self._send_pending()

        return send

    def _send_part(self, iteration: Iteration, part: HostCopy) -> None:
        value = part.read()
        self._send(iteration, [DTYPES.index(value.dtype), value.item(), iteration.terms.own_count()])

    def _send_pending(self) -> None:
        """Send this rank's part. On an accelerator it is read when everything of the iteration has been queued."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending()

    def open(self, iteration: Iteration) -> None:
        """Let the iteration exchange the reduction of the loss, if ranks of the last stage have to find it."""
        if iteration.terms.is_trial:
            iteration.announce_reduction = partial(self._announce, iteration)
            iteration.receive_reduction = partial(self._receive_reduction, iteration)

    def _announce(self, iteration: Iteration) -> None:
        assert iteration.terms.reduction is not None, "it has just been found"
        self._send(iteration, [_codes(iteration).index(iteration.terms.reduction)])

    def _receive_reduction(self, iteration: Iteration, rank: int) -> None:
        if rank == self._rank or rank in iteration.reductions_from:
            return
        iteration.reductions_from.add(rank)
        reduction = _codes(iteration)[int(self._receive(rank, iteration, 1)[0])]
        if iteration.terms.reduction not in (None, reduction):
            raise MismatchError(
                f"{self._describe(rank, iteration.step)}: the loss has another reduction on that rank than on this one",
                hint="Use the same model, loss function and version of torch on all ranks.",
            )
        iteration.terms.reduction = reduction

    def _send(self, iteration: Iteration, values: Sequence[float]) -> None:
        message = torch.tensor(values, dtype=torch.float64)
        for peer in range(self._num_ranks):
            if peer != self._rank:
                describe = partial(self._describe, peer, iteration.step)
                self._transport.send_tensors([message], peer, iteration.first_tag, describe)

    def collect(self, iteration: Iteration) -> Tensor:
        """Return the loss of the batch. Block until all parts have arrived."""
        self._send_pending()
        rows = iteration.rows[self._last]
        total: Tensor | None = None
        count = 0.0
        for replica, rank in enumerate(self._owners):
            if not any(part[replica].num for part in rows):
                continue
            if rank == self._rank:
                assert iteration.own_loss is not None, "a rank with rows of the last stage has computed its part"
                part, part_count = iteration.own_loss, iteration.terms.own_count()
            else:
                iteration.receive_reduction(rank)
                dtype, value, part_count = self._receive(rank, iteration, 3)
                part = torch.full((), value, dtype=DTYPES[int(dtype)], device=iteration.device)
            total = part if total is None else total + part
            count += part_count
        assert total is not None, "a batch has rows, so at least one rank has a part"
        iteration.terms.total_count = count
        factor = iteration.terms.sum_factor(iteration.num_rows)
        return total if factor is None else (total.double() * factor).to(total.dtype)

    def _receive(self, rank: int, iteration: Iteration, num_values: int) -> list[float]:
        describe = partial(self._describe, rank, iteration.step)
        self._transport.check_peer(rank, describe)
        message = torch.empty(num_values, dtype=torch.float64)
        self._transport.wait(self._transport.irecv_tensor(message, rank, iteration.first_tag, describe), describe)
        values: list[float] = message.tolist()
        return values

    def _describe(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, the loss (with rank {peer})"


def _codes(iteration: Iteration) -> list[Reduction]:
    """The possible reductions, in the same order on all ranks."""
    return [SUMS, *iteration.terms.candidates]
