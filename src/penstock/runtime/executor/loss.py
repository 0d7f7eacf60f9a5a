"""The loss of a batch, on every rank: the parts of all that have rows at the last stage, added in one order."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from penstock.errors import InputError
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.transport import Mail

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""A part travels as the number of its type in this list, and its value, which a double holds."""


class Losses:
    """A rank's part in that."""

    def __init__(self, layout: Layout, rank: int, num_ranks: int, mail: Mail) -> None:
        self._owners = layout.stages[-1].forward
        self._rank = rank
        self._num_ranks = num_ranks
        self._mail = mail

    def sharing(self, iteration: Iteration) -> Callable[[Tensor], None]:
        """What is to be called with this rank's part, when it is known."""

        def share(part: Tensor) -> None:
            iteration.loss_part = part
            if part.dtype not in TYPES:
                raise InputError(
                    f"the loss is of type {part.dtype}", hint="A loss must be a real floating-point number."
                )
            message = torch.tensor([TYPES.index(part.dtype), part.item()], dtype=torch.float64)
            for peer in range(self._num_ranks):
                if peer != self._rank:
                    told = partial(self._telling, peer, iteration.step)
                    self._mail.send_tensors([message], peer, iteration.first_tag, told)

        return share

    def collect(self, iteration: Iteration) -> Tensor:
        """The mean over all rows."""
        rows = iteration.rows[-1]
        total: Tensor | None = None
        for replica, rank in enumerate(self._owners):
            if not any(part[replica].num for part in rows):
                continue
            if rank == self._rank:
                part = iteration.loss_part
                assert part is not None, "whoever has rows has made its part"
            else:
                part = self._receive(rank, iteration)
            total = part if total is None else total + part
        assert total is not None, "a batch has rows, so somebody has a loss"
        return total

    def _receive(self, rank: int, iteration: Iteration) -> Tensor:
        told = partial(self._telling, rank, iteration.step)
        self._mail.hear(rank, told)
        message = torch.empty(2, dtype=torch.float64)
        self._mail.wait(self._mail.receive_tensor(message, rank, iteration.first_tag, told), told)
        kind, value = message.tolist()
        return torch.tensor(value, dtype=TYPES[int(kind)], device=iteration.device)

    def _telling(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, the loss (with rank {peer})"
