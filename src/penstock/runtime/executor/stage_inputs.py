"""What a stage's job needs from its neighbours, put together from the parts that several ranks made."""

from torch import Tensor

from penstock.program import Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.tensors import Packed, Rows, join_gradients, join_rows, pack, some_rows


def gather_forward(addresses: Addresses, iteration: Iteration, stage: int, microbatch: int, rows: Rows) -> Packed:
    """What comes into a forward for these rows."""
    if stage == 0:
        return pack(some_rows(iteration.inputs, rows, iteration.device))[0]
    parts, counts = _gather(addresses, iteration, Kind.F, stage, microbatch, rows)
    return join_rows(parts, counts)


def gather_gradients(
    addresses: Addresses, iteration: Iteration, stage: int, microbatch: int, rows: Rows
) -> list[Tensor | None]:
    """The gradients with which a backward begins."""
    return join_gradients(*_gather(addresses, iteration, Kind.B, stage, microbatch, rows))


def _gather(
    addresses: Addresses, iteration: Iteration, what: Kind, stage: int, microbatch: int, rows: Rows
) -> tuple[list[Packed], list[int]]:
    """The parts of what the neighbour makes for these rows, from here and from other ranks."""
    near = stage - 1 if what == Kind.F else stage + 1
    view = addresses.layout.stages[near]
    ranks = view.forward if what == Kind.F else view.backward
    parts, counts = [], []
    for rank, theirs in zip(ranks, iteration.rows[near][microbatch], strict=True):
        common = rows.common(theirs)
        if not common.num:
            continue
        if rank == addresses.rank:
            parts.append(iteration.take((what, near, microbatch), rows))
        else:
            parts.append(iteration.pending.pop((what, stage, microbatch, rank)).wait())
        counts.append(common.num)
    return parts, counts
