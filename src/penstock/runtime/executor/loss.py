"""The loss of a batch on every rank: the parts of all replicas of the last stage, summed in one order."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.transport import Transport

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""A part is sent as the index of its dtype in this list and its value, which a double holds exactly."""


class LossExchange:
    """Exchanges the parts of the loss.

    Args:
        layout: The layout of the plan.
        rank: This rank.
        num_ranks: Number of ranks, including those that the plan does not use.
        transport: Sends the parts.
    """

    def __init__(self, layout: Layout, rank: int, num_ranks: int, transport: Transport) -> None:
        self._owners = layout.stages[-1].forward
        self._rank = rank
        self._num_ranks = num_ranks
        self._transport = transport

    def sender(self, iteration: Iteration) -> Callable[[Tensor], None]:
        """Return the function that sends this rank's part to all other ranks."""

        def send(part: Tensor) -> None:
            iteration.own_loss = part
            if part.dtype not in DTYPES:
                raise InputError(
                    f"the loss has dtype {part.dtype}", hint="The loss must be a real floating-point number."
                )
            message = torch.tensor([DTYPES.index(part.dtype), part.item()], dtype=torch.float64)
            for peer in range(self._num_ranks):
                if peer != self._rank:
                    describe = partial(self._describe, peer, iteration.step)
                    self._transport.send_tensors([message], peer, iteration.first_tag, describe)

        return send

    def collect(self, iteration: Iteration) -> Tensor:
        """Return the mean over all rows. Block until all parts have arrived."""
        rows = iteration.rows[-1]
        total: Tensor | None = None
        for replica, rank in enumerate(self._owners):
            if not any(part[replica].num for part in rows):
                continue
            if rank == self._rank:
                part = iteration.own_loss
                assert part is not None, "a rank with rows of the last stage has computed its part"
            else:
                part = self._receive(rank, iteration)
            total = part if total is None else total + part
        assert total is not None, "a batch has rows, so at least one rank has a part"
        return total

    def _receive(self, rank: int, iteration: Iteration) -> Tensor:
        describe = partial(self._describe, rank, iteration.step)
        self._transport.check_peer(rank, describe)
        message = torch.empty(2, dtype=torch.float64)
        self._transport.wait(self._transport.irecv_tensor(message, rank, iteration.first_tag, describe), describe)
        dtype, value = message.tolist()
        return torch.tensor(value, dtype=DTYPES[int(dtype)], device=iteration.device)

    def _describe(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, the loss (with rank {peer})"
