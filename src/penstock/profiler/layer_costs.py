"""The layers of a profile: their measured times with their spread, bytes and tied parameters."""

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.profile import Sizes, Spread, Tie, Times, Unit, measured_spread
from penstock.profiler.steadiness import deviation

if TYPE_CHECKING:
    import torch

    from penstock.model import Block
    from penstock.profiler.block_passes import BlockHarness, Bytes, Passes


class MeasuredLayers(NamedTuple):
    """The layers of a profile, and the spread of their times."""

    units: tuple[Unit, ...]
    spread: Spread


def measured_layers(
    blocks: Sequence["Block"],
    harnesses: Sequence[Sequence["BlockHarness"]],
    sizes: Sequence[int],
    turns: Sequence[Sequence[Sequence["Passes"]]],
    device: "torch.device",
) -> MeasuredLayers:
    """Return the layers. `turns[size][unit]` are the measured passes; their spread is that of the first size."""
    from penstock.device import device_kind_of
    from penstock.profiler.optimizer_step import StepTime, time_step

    kind = device_kind_of(device)
    units, layer_steps = [], []
    steps: dict[Any, StepTime] = {}
    for number, block in enumerate(blocks):
        form = tuple((item.shape, item.dtype) for item in block.parameters.values() if item.requires_grad)
        if form not in steps:  # layers of equal shapes take equal steps
            steps[form] = time_step(block, device)
        layer_steps.append(steps[form])
        sizes_in_bytes = [size[number].bytes() for size in harnesses]
        units.append(
            Unit(
                name=block.name,
                parameter_bytes=_bytes(block, block.parameters),
                trained_parameter_bytes=_trained_bytes(block),
                sizes=tuple(
                    Sizes(
                        micro_batch_size=rows,
                        cut_bytes=count.cut,
                        saved_bytes=count.saved,
                        # Deferred weight gradients may need all that checkpointed parts have saved again.
                        pending_bytes=count.saved + count.recomputed.total if count.recomputed.total else None,
                    )
                    for rows, count in zip(sizes, sizes_in_bytes, strict=True)
                ),
                recomputed_bytes=_recomputed(sizes_in_bytes),
                times=tuple(
                    _times(kind, rows, size[number], steps[form].seconds)
                    for rows, size in zip(sizes, turns, strict=True)
                ),
            )
        )
    return MeasuredLayers(
        tuple(units),
        measured_spread(
            forward=[deviation([turn.forward_s for turn in layer]) for layer in turns[0]],
            input_grad=[deviation([turn.input_s for turn in layer]) for layer in turns[0]],
            weight_grad=[deviation([turn.weight_s for turn in layer]) for layer in turns[0]],
            step=[step.deviation for step in layer_steps],
        ),
    )


def _recomputed(counts: Sequence["Bytes"]) -> tuple[int, ...]:
    """Return the bytes of the largest checkpointed part for each size; nothing if no part saves anything again."""
    largest = tuple(count.recomputed.largest for count in counts)
    return largest if any(largest) else ()


def _times(kind: str, rows: int, turns: Sequence["Passes"], step: float) -> Times:
    """Return medians over the turns. The fused backward is divided in the ratio of the parts of the split one.

    The ratio is that of the lower quartiles: interruptions lengthen the longer part of nearly every turn.
    """
    backward_s = statistics.median(turn.backward_s for turn in turns)
    input_s, weight_s = (
        sorted(values)[len(values) // 4]
        for values in ([turn.input_s for turn in turns], [turn.weight_s for turn in turns])
    )
    share = weight_s / (input_s + weight_s) if weight_s else 0.0
    return Times(
        kind=kind,
        micro_batch_size=rows,
        forward_s=statistics.median(turn.forward_s for turn in turns),
        input_grad_s=backward_s * (1 - share),
        weight_grad_s=backward_s * share,
        step_s=step,
    )


def ties(blocks: Sequence["Block"]) -> tuple[Tie, ...]:
    """Return the parameters that several blocks use."""
    from penstock.model import shared_parameters

    return tuple(
        Tie(
            name=name,
            parameter_bytes=_bytes(blocks[units[0]], (name,)),
            units=units,
            is_trained=blocks[units[0]].parameters[name].requires_grad,
        )
        for name, units in shared_parameters(blocks).items()
    )


def largest_parameter(block: "Block") -> int:
    """Return the bytes of the largest trained parameter of a block."""
    return max((_bytes(block, (name,)) for name in _trained(block)), default=0)


def _trained(block: "Block") -> list[str]:
    return [name for name, item in block.parameters.items() if item.requires_grad]


def _trained_bytes(block: "Block") -> int | None:
    """Return the bytes of the trained parameters, or None if all are trained."""
    trained = _trained(block)
    return None if len(trained) == len(block.parameters) else _bytes(block, trained)


def _bytes(block: "Block", names: Any) -> int:
    return sum(block.parameters[name].numel() * block.parameters[name].element_size() for name in names)
