"""The loss of a batch, on every rank: the parts of all that have rows at the last segment, added in one order."""

from collections.abc import Callable

from torch import Tensor

from penstock.runtime.carry import pack
from penstock.runtime.iteration import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.mail import Mail, Tell


class Losses:
    """A rank's part in that."""

    def __init__(self, layout: Layout, rank: int, num_ranks: int, mail: Mail) -> None:
        self._owners = layout.segments[-1].forward
        self._rank = rank
        self._num_ranks = num_ranks
        self._mail = mail

    def sharing(self, iteration: Iteration) -> Callable[[Tensor], None]:
        """What is to be called with this rank's part, when it is known."""

        def share(part: Tensor) -> None:
            iteration.loss_part = part
            packed = pack(part)[0]
            for peer in range(self._num_ranks):
                if peer != self._rank:
                    told = self._telling(peer, iteration.step)
                    self._mail.send(packed, peer, iteration.first_tag, iteration.signature, told)

        return share

    def collect(self, iteration: Iteration) -> Tensor:
        """The mean over all rows."""
        rows = iteration.rows[-1]
        total: Tensor | None = None
        for member, rank in enumerate(self._owners):
            if not any(part[member].num for part in rows):
                continue
            if rank == self._rank:
                part = iteration.loss_part
                assert part is not None, "whoever has rows has made its part"
            else:
                told = self._telling(rank, iteration.step)
                part = self._mail.expect(rank, iteration.first_tag, iteration.signature, told).wait().tensors[0]
            total = part if total is None else total + part
        assert total is not None, "a batch has rows, so somebody has a loss"
        return total

    def _telling(self, peer: int, step: int) -> Tell:
        return lambda: f"rank {self._rank}, step {step}, the loss (with rank {peer})"
