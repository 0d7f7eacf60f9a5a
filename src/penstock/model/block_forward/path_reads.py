"""The data that decides which path forward takes, and the sizes of what it makes, read from inputs.

Forward may branch on data that depends on the inputs only, and on shapes that depend on such data, as those of
`nonzero` and of masked indexing. A trace holds for inputs of which both are as in the trace.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.model.block_forward.replay import Operation, SharedValues, repeat
from penstock.model.block_forward.traces import Trace
from penstock.model.blocks import Activations
from penstock.model.tracing import Event, Slot, read_autocast
from penstock.model.trees import tensors_of


def takes_path(trace: Trace, model: torch.nn.Module, inputs: Activations, devices: Sequence[str]) -> bool:
    """Return whether forward reads the same data from these inputs as in the trace, and makes the same sizes."""
    if not trace.reading:
        trace.reading.append(_reading(trace))
    operations = trace.reading[0]
    if not operations:
        # The run itself notices another branch, but not other sizes.
        return not any(trace.record.events[number].is_sized_by_data for number in trace.local_reads)
    values = SharedValues(trace, inputs).values
    autocast = read_autocast(devices)
    with torch.no_grad():
        for operation in operations:
            event = trace.record.events[operation.number]
            result = repeat(operation, _without_data(trace, event), values, model, autocast)
            leaves = [result] if operation.is_single else pytree.tree_leaves(result)
            if event.reads_values and leaves != list(event.leaves):
                return False
            if event.is_sized_by_data and not _has_sizes(trace, event, tensors_of(leaves)):
                return False
            for place, value in operation.results:
                values[value] = leaves[place]
    return True


def _reading(trace: Trace) -> tuple[Operation, ...]:
    """The operations by which forward reads data that depends on the inputs only; none if one cannot be repeated."""
    reads, events = trace.local_reads, trace.record.events
    needed: set[int] = {value for number in reads for value in events[number].uses}
    operations: list[Operation] = []
    for number in range(reads[-1], 0, -1):
        event = events[number]
        if number in reads or (trace.flow.is_local(event) and needed.intersection((*event.makes, *event.changes))):
            if event.call is None or not event.call.is_repeatable:
                return ()
            results = tuple((place, leaf.value) for place, leaf in enumerate(event.leaves) if isinstance(leaf, Slot))
            function, is_single = event.call.function, event.spec.is_leaf()
            operations.append(Operation(number, function, event.call, results, is_single, True, (), ()))
            needed.update(event.uses)
    return tuple(reversed(operations))


def _without_data(trace: Trace, event: Event) -> dict[int, Tensor]:
    """Return zeros for the values that an event uses and that do not follow from the inputs, by their numbers."""
    zeros = {}
    for value in event.uses if event.is_sized_by_data else ():
        if value not in trace.flow.local:
            known = trace.record.values[value]
            zeros[value] = torch.zeros((), dtype=known.dtype, device=known.device).expand(known.shape)
    return zeros


def _has_sizes(trace: Trace, event: Event, made: Sequence[Tensor]) -> bool:
    """Return whether tensors have the shapes of the trace; after the last block, 2 stands for all larger sizes."""
    shapes = [trace.record.values[value].shape for value in event.makes]
    actual = [tuple(tensor.shape) for tensor in made]
    if not trace.is_at_end(event):
        return actual == shapes
    return [[min(size, 2) for size in shape] for shape in actual] == [
        [min(size, 2) for size in shape] for shape in shapes
    ]
