"""The loss of a batch on every rank: the parts of all replicas of the last stage, summed in one order.

The parts go to the rank of the first replica, along a tree over the ranks that compute them. The sum goes from there to
all ranks, along a tree over all of them. A rank sends as soon as it has what it sends: where one rank computes the loss
of a few, all have it before their last backward.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from penstock.device import HostCopy, is_accelerator
from penstock.dist import RankTree, tree_from
from penstock.errors import InputError, MismatchError
from penstock.runtime.executor.context import Iteration
from penstock.runtime.layout import Layout
from penstock.runtime.loss import SUMS, Reduction
from penstock.runtime.transport import Transport

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

Part = tuple[float, float, float, float]
"""Index of the dtype in `DTYPES`, value, which a double holds exactly, count, and index of the reduction."""
NO_PART: Part = (-1.0, 0.0, 0.0, -1.0)
"""The part of a replica without rows."""
DISAGREE = -2.0
"""The dtype of a sum whose parts have different reductions: every rank raises the error."""


def loss_tree(layout: Layout, num_ranks: int) -> RankTree:
    """Return the tree over which the loss goes to all ranks, from that of the first replica of the last stage."""
    return tree_from(layout.stages[-1].forward[0], num_ranks)


def part_tree(layout: Layout) -> RankTree:
    """Return the tree over which the parts of the loss go to the rank of the first replica."""
    return RankTree(layout.stages[-1].forward)


class LossExchange:
    """Exchanges the parts of the loss.

    Args:
        layout: The layout of the plan.
        rank: This rank.
        num_ranks: Number of ranks, including those that the plan does not use.
        transport: Sends the parts.
    """

    def __init__(self, layout: Layout, rank: int, num_ranks: int, transport: Transport) -> None:
        self._last = layout.stages[-1]
        self._last_number = len(layout.stages) - 1
        self._parts, self._sums = part_tree(layout), loss_tree(layout, num_ranks)
        self._rank = rank
        self._is_root = rank == self._sums.root
        self._transport = transport
        self._pending: Callable[[], None] | None = None
        """Sends this rank's part of the loss, which is on its way to the host."""

    def sender(self, iteration: Iteration) -> Callable[[Tensor], None]:
        """Return the function that takes this rank's part, and sends it if no other part has to be added before."""

        def send(part: Tensor) -> None:
            iteration.own_loss = part
            if part.dtype not in DTYPES:
                raise InputError(
                    f"the loss has dtype {part.dtype}", hint="The loss must be a real floating-point number."
                )
            self._pending = partial(self._send_part, iteration, HostCopy(part))
            if not is_accelerator(part.device) and not self._parts.children(self._rank):
                self._send_pending()

        return send

    def _send_pending(self) -> None:
        """Send this rank's part. On an accelerator it is read when everything of the iteration has been queued."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending()

    def _send_part(self, iteration: Iteration, copy: HostCopy | None) -> None:
        """Send the parts of this rank and of those below it, or their sum if this rank is the root."""
        own = NO_PART
        if copy is not None:
            value = copy.read()
            own = (float(DTYPES.index(value.dtype)), value.item(), iteration.terms.own_count(), _code(iteration))
        parts = {self._rank: own}
        for child in self._parts.children(self._rank):
            below = self._parts.below(child)
            received = self._receive(child, iteration, 4 * len(below))
            parts |= {rank: _part(received[4 * place : 4 * place + 4]) for place, rank in enumerate(below)}
        if self._is_root:
            self._note_sum(iteration, _sum_parts([parts[rank] for rank in self._last.forward]))
        else:
            parent = self._parts.parent(self._rank)
            assert parent is not None, "the root of the parts is that of the sum"
            ordered = [number for rank in self._parts.below(self._rank) for number in parts[rank]]
            self._send(iteration, ordered, parent)

    def _note_sum(self, iteration: Iteration, found: Part) -> None:
        """Send the loss of the batch to the ranks below, and keep it."""
        for child in self._sums.children(self._rank):
            self._send(iteration, found, child)
        dtype, value, count, code = found
        if dtype == DISAGREE:
            raise MismatchError(
                f"{self._describe(self._sums.root, iteration.step)}: the ranks of the last stage have found different "
                "reductions of the loss",
                hint="Use the same model, loss function and version of torch on all ranks.",
            )
        iteration.loss = torch.full((), value, dtype=DTYPES[int(dtype)], device=iteration.device)
        iteration.terms.total_count = count
        if iteration.terms.is_trial:
            iteration.terms.reduction = _codes(iteration)[int(code)]

    def collect(self, iteration: Iteration) -> Tensor:
        """Return the loss of the batch. Block until all parts have arrived."""
        self._receive_reductions(iteration)
        self._send_pending()
        if self._rank in self._parts and iteration.own_loss is None:
            self._send_part(iteration, None)
        parent = self._sums.parent(self._rank)
        if parent is not None:
            self._note_sum(iteration, _part(self._receive(parent, iteration, 4)))
        total = iteration.loss
        assert total is not None, "a batch has rows, so at least one rank has a part"
        factor = iteration.terms.sum_factor(iteration.num_rows)
        return total if factor is None else (total.double() * factor).to(total.dtype)

    def open(self, iteration: Iteration) -> None:
        """Let the iteration exchange the reduction of the loss, if ranks of the last stage have to find it."""
        if iteration.terms.is_trial:
            iteration.announce_reduction = partial(self._announce, iteration)
            iteration.receive_reduction = partial(self._receive_reduction, iteration)

    def _announce(self, iteration: Iteration) -> None:
        """Send the reduction to the rank that runs the backward of this rank's forward, if it is another one."""
        for source, target in zip(self._last.forward, self._last.backward, strict=True):
            if source == self._rank != target:
                self._send(iteration, [_code(iteration)], target)

    def _receive_reductions(self, iteration: Iteration) -> None:
        """Receive what has been announced to this rank and not been needed: its rows may be none."""
        rows = iteration.rows[self._last_number]
        for replica, (source, target) in enumerate(zip(self._last.forward, self._last.backward, strict=True)):
            if target == self._rank and any(part[replica].num for part in rows):
                iteration.receive_reduction(source)

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

    def _send(self, iteration: Iteration, values: Sequence[float], peer: int) -> None:
        message = torch.tensor(values, dtype=torch.float64)
        describe = partial(self._describe, peer, iteration.step)
        self._transport.send_tensors([message], peer, iteration.first_tag, describe)

    def _receive(self, rank: int, iteration: Iteration, num_values: int) -> list[float]:
        describe = partial(self._describe, rank, iteration.step)
        self._transport.check_peer(rank, describe)
        message = torch.empty(num_values, dtype=torch.float64)
        self._transport.wait(self._transport.irecv_tensor(message, rank, iteration.first_tag, describe), describe)
        values: list[float] = message.tolist()
        return values

    def _describe(self, peer: int, step: int) -> str:
        return f"rank {self._rank}, step {step}, the loss (with rank {peer})"


def _sum_parts(parts: Sequence[Part]) -> Part:
    """Sum the parts in the order of the replicas, each in its own type. The sum has the bits of one process."""
    total: Tensor | None = None
    count, found = 0.0, -1.0
    for dtype, value, part_count, code in parts:
        if dtype == NO_PART[0]:
            continue
        if found not in (NO_PART[3], code):
            return (DISAGREE, 0.0, 0.0, 0.0)
        part = torch.full((), value, dtype=DTYPES[int(dtype)])
        total = part if total is None else total + part
        count, found = count + part_count, code
    assert total is not None, "a batch has rows, so at least one rank has a part"
    return (float(DTYPES.index(total.dtype)), total.item(), count, found)


def _part(values: Sequence[float]) -> Part:
    dtype, value, count, code = values
    return dtype, value, count, code


def _code(iteration: Iteration) -> float:
    """The index of the reduction, if ranks of the last stage have to find it in this iteration."""
    reduction = iteration.terms.reduction
    assert reduction is not None, "a part is computed once the reduction is known"
    return float(_codes(iteration).index(reduction)) if iteration.terms.is_trial else 0.0


def _codes(iteration: Iteration) -> list[Reduction]:
    """The possible reductions, in the same order on all ranks."""
    return [SUMS, *iteration.terms.candidates]
