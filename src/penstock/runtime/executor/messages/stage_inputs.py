"""The inputs of a stage's forward and backward, joined from the parts that several ranks produce."""

from torch import Tensor

from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages.routing import Message, Routing
from penstock.runtime.tensors import PackedPayload, Rows, join_gradients, join_rows, pack, slice_rows


def gather_forward(routing: Routing, iteration: Iteration, stage: int, microbatch: int, rows: Rows) -> PackedPayload:
    """Return the input of a forward for these rows. Block until all parts have arrived."""
    if stage == 0:
        return pack(slice_rows(iteration.inputs, rows, iteration.device))[0]
    parts, counts = _gather(routing, iteration, Message.ACTIVATIONS, stage, microbatch, rows)
    return join_rows(parts, counts)


def gather_gradients(
    routing: Routing, iteration: Iteration, stage: int, microbatch: int, rows: Rows
) -> list[Tensor | None]:
    """Return the output gradients for a backward. Block until all parts have arrived."""
    return join_gradients(*_gather(routing, iteration, Message.GRADIENTS, stage, microbatch, rows))


def _gather(
    routing: Routing, iteration: Iteration, message: Message, stage: int, microbatch: int, rows: Rows
) -> tuple[list[PackedPayload], list[int]]:
    """Return the parts that the neighbouring stage produces for these rows, and their numbers of rows."""
    neighbour = stage - 1 if message == Message.ACTIVATIONS else stage + 1
    view = routing.layout.stages[neighbour]
    ranks = view.forward if message == Message.ACTIVATIONS else view.backward
    parts, counts = [], []
    for rank, produced in zip(ranks, iteration.rows[neighbour][microbatch], strict=True):
        common = rows.common(produced)
        if not common.num:
            continue
        if rank == routing.rank:
            parts.append(iteration.take((message, neighbour, microbatch), rows))
        else:
            parts.append(iteration.pending.pop((message, stage, microbatch, rank)).wait())
        counts.append(common.num)
    return parts, counts
