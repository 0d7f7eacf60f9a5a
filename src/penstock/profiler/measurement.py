"""Measurement of a model: the passes of every block are timed in rounds until the medians are steady."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.profile import Profile, Sizes, Tie, Times, Unit
from penstock.profiler.steadiness import Steadiness, assess
from penstock.units import show_percent, show_seconds

if TYPE_CHECKING:
    import torch
    from torch import nn

    from penstock.model import Block
    from penstock.profiler.block_passes import BlockHarness, Passes

DEFAULT_SECONDS = 30.0
DEFAULT_STEADY = 0.02
_FEWEST_ROUNDS = 4
_ADAMW_RATIO = 2.0


def measure(
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any] | None = None,
    *,
    targets: Any = None,
    blocks: Sequence[str] | None = None,
    micro_batch_sizes: Sequence[int] = (),
    seconds: float = DEFAULT_SECONDS,
    steady: float = DEFAULT_STEADY,
    name: str = "",
    report: Callable[[Steadiness], None] | None = None,
) -> Profile:
    """Measure the layers of a model on its device: `penstock.profile` without the runtime overhead.

    Args and errors are those of `penstock.profile`.
    """
    try:
        from penstock.model import (
            bytes_of,
            check_rows,
            find_blocks,
            keep_freed_memory,
            plain_inputs,
            preserve_state,
            rows_of,
            with_rows,
        )
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("measuring a model needs torch", hint="pip install 'penstock[run]'") from None

    started = time.perf_counter()
    inputs, targets = plain_inputs(inputs), plain_inputs(targets)
    # As training does, which follows.
    check_rows((inputs, targets))
    device = _device_of(model)
    if device.type == "cpu":
        # As in training. Otherwise the times of large tensors would include page faults.
        keep_freed_memory()
    sizes = _sizes(micro_batch_sizes, rows_of(inputs))
    own_rows = max(micro_batch_sizes) if micro_batch_sizes else rows_of(inputs)
    with preserve_state(model):
        chain = find_blocks(model, blocks, inputs)
        harnesses = [_build_harnesses(chain, (inputs, targets), loss, size, device) for size in sizes]
        turns, steadiness = _rounds(harnesses, [block.name for block in chain], started, seconds, steady, report)
        units = _units(chain, harnesses, sizes, turns, device)
    return Profile(
        name=name or type(model).__name__,
        micro_batch_size=own_rows,
        units=units,
        input_bytes=bytes_of(with_rows(inputs, own_rows)),
        ties=_ties(chain),
        largest_parameter_bytes=tuple(_largest(block) for block in chain),
        gradient_ratio=1.0,
        optimizer_ratio=_ADAMW_RATIO,
        assumptions=_assumptions(model, steadiness),
        is_steady=steadiness.is_steady,
    )


def _describe(steadiness: Steadiness) -> str:
    """Describe the variation of the measurements in a sentence."""
    verdict = "" if steadiness.is_steady else f"NOT steady to {show_percent(steadiness.tolerance)}: "
    return (
        f"{verdict}measured in {steadiness.num_rounds} rounds over {show_seconds(steadiness.seconds)}; all layers "
        f"together are steady to {show_percent(steadiness.overall)}, the least steady one ({steadiness.worst_unit}) "
        f"to {show_percent(steadiness.worst)}"
    )


def _rounds(
    harnesses: Sequence[Sequence["BlockHarness"]],
    names: Sequence[str],
    started: float,
    limit_s: float,
    tolerance: float,
    report: Callable[[Steadiness], None] | None,
) -> tuple[list[list[list["Passes"]]], Steadiness]:
    """Return `turns[size][unit]`: sizes and layers take turns, so that a slow phase of the machine affects all."""
    from penstock.profiler.block_passes import time_passes

    turns: list[list[list[Passes]]] = [[[] for _ in size] for size in harnesses]
    while True:
        for size, taken in zip(harnesses, turns, strict=True):
            for passes, turn in zip(time_passes(size), taken, strict=True):
                turn.append(passes)
        steadiness = assess(
            names,
            [[[passes.forward_s + passes.both_s for passes in unit] for unit in size] for size in turns],
            seconds=time.perf_counter() - started,
            tolerance=tolerance,
        )
        if report is not None:
            report(steadiness)
        if steadiness.num_rounds >= _FEWEST_ROUNDS and (steadiness.is_steady or steadiness.seconds >= limit_s):
            return turns, steadiness


def _build_harnesses(
    blocks: Sequence["Block"],
    sample: tuple[Any, Any],
    loss: Callable[..., Any] | None,
    rows: int,
    device: "torch.device",
) -> "tuple[BlockHarness, ...]":
    from penstock.model import mean_loss, with_rows
    from penstock.profiler.block_passes import build_harnesses

    inputs, targets = with_rows(sample, rows)
    try:
        return build_harnesses(blocks, inputs, mean_loss(loss, targets), device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the model and its loss fail on {rows} rows: {type(error).__name__}: {error}",
            hint="Pass the targets of the loss as targets, so that they have the same rows; or choose other "
            "micro-batch sizes.",
        ) from error


def _units(
    blocks: Sequence["Block"],
    harnesses: Sequence[Sequence["BlockHarness"]],
    sizes: Sequence[int],
    turns: Sequence[Sequence[Sequence["Passes"]]],
    device: "torch.device",
) -> tuple[Unit, ...]:
    from penstock.model import device_kind_of, is_compiled
    from penstock.profiler.block_passes import step_s

    kind = device_kind_of(device)
    units = []
    for number, block in enumerate(blocks):
        step = step_s(block, device)
        sizes_in_bytes = [size[number].bytes() for size in harnesses]
        units.append(
            Unit(
                name=block.name,
                parameter_bytes=_bytes(block, block.parameters),
                sizes=tuple(
                    Sizes(micro_batch_size=rows, cut_bytes=count.cut, saved_bytes=count.saved)
                    for rows, count in zip(sizes, sizes_in_bytes, strict=True)
                ),
                times=tuple(
                    _times(kind, rows, size[number], step, is_fused=is_compiled(block.module))
                    for rows, size in zip(sizes, turns, strict=True)
                ),
            )
        )
    return tuple(units)


def _times(kind: str, rows: int, turns: Sequence["Passes"], step: float, *, is_fused: bool) -> Times:
    """Return medians over the turns. The weight gradient is the full backward minus the backward to the inputs.

    With `is_fused` both gradients are computed at once.
    """
    weight_grad_s = 0.0 if is_fused else max(0.0, statistics.median(turn.both_s - turn.input_s for turn in turns))
    return Times(
        kind=kind,
        micro_batch_size=rows,
        forward_s=statistics.median(turn.forward_s for turn in turns),
        input_grad_s=statistics.median(turn.both_s if is_fused else turn.input_s for turn in turns),
        weight_grad_s=weight_grad_s,
        step_s=step,
    )


def _ties(blocks: Sequence["Block"]) -> tuple[Tie, ...]:
    from penstock.model import shared_parameters

    return tuple(
        Tie(name=name, parameter_bytes=_bytes(blocks[units[0]], (name,)), units=units)
        for name, units in shared_parameters(blocks).items()
    )


def _largest(block: "Block") -> int:
    return max((_bytes(block, (name,)) for name in block.parameters), default=0)


def _bytes(block: "Block", names: Any) -> int:
    return sum(block.parameters[name].numel() * block.parameters[name].element_size() for name in names)


def _sizes(rows: Sequence[int], sample_rows: int) -> tuple[int, ...]:
    """Return the micro-batch sizes to measure, the largest first."""
    if any(size < 1 for size in rows):
        raise InputError(f"micro-batch size must be at least 1, not {min(rows)}")
    if rows:
        return tuple(sorted(set(rows), reverse=True))
    return (sample_rows, sample_rows // 2) if sample_rows > 1 else (2, 1)


def _device_of(model: "nn.Module") -> "torch.device":
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise InputError("the model has no parameters", hint="There is nothing to train.")
    if parameter.is_meta:
        raise InputError(
            "the model is on the meta device",
            hint="Measurements need real tensors: call penstock.materialize(model) first.",
        )
    return parameter.device


def _assumptions(model: "nn.Module", steadiness: Steadiness) -> tuple[str, ...]:
    first = _describe(steadiness)
    return (
        first[0].upper() + first[1:] + ".",
        "The weight gradient is the time of the full backward minus that of the backward to the inputs.",
        "The optimizer is AdamW in the precision of the parameters: its step is measured, its state is 2 x parameters.",
        *(() if model.training else ("The model was in evaluation mode.",)),
    )
