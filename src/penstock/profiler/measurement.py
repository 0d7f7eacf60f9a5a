"""Measuring a model: every block's passes timed in rounds, until the medians are steady. Needs torch."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.profile import Profile, Sizes, Tie, Times, Unit
from penstock.profiler.steadiness import Steadiness, judge
from penstock.units import show_percent, show_seconds

if TYPE_CHECKING:
    import torch
    from torch import nn

    from penstock.model import Block
    from penstock.profiler.block_passes import Passes, Stand

DEFAULT_SECONDS = 30.0
DEFAULT_STEADY = 0.02
_FEWEST_ROUNDS = 4
_ADAMW_RATIO = 2.0


def measure(
    model: "nn.Module",
    inputs: Any,
    loss: Callable[..., Any],
    *,
    targets: Any = None,
    blocks: Sequence[str] | None = None,
    micro_batch_sizes: Sequence[int] = (),
    seconds: float = DEFAULT_SECONDS,
    steady: float = DEFAULT_STEADY,
    name: str = "",
    report: Callable[[Steadiness], None] | None = None,
) -> Profile:
    """A model's units, measured where it is: `penstock.profile` without what the runtime spends around them."""
    try:
        from penstock.model import bytes_of, find_blocks, keep_freed_memory, rows_of, undone, with_rows
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("measuring a model needs torch", hint="pip install 'penstock[run]'") from None

    started = time.perf_counter()
    device = _device_of(model)
    if device.type == "cpu":
        # As in training: else what large tensors take is counted with the cleaning of fresh memory.
        keep_freed_memory()
    sizes = _sizes(micro_batch_sizes, rows_of(inputs))
    own_rows = max(micro_batch_sizes) if micro_batch_sizes else rows_of(inputs)
    with undone(model):
        found = find_blocks(model, blocks, inputs)
        stands = [_stands(found, (inputs, targets), loss, size, device) for size in sizes]
        turns, steadiness = _rounds(stands, [block.name for block in found], started, seconds, steady, report)
        units = _units(found, stands, sizes, turns, device)
    return Profile(
        name=name or type(model).__name__,
        micro_batch_size=own_rows,
        units=units,
        input_bytes=bytes_of(with_rows(inputs, own_rows)),
        ties=_ties(found),
        largest_parameter_bytes=tuple(_largest(block) for block in found),
        gradient_ratio=1.0,
        optimizer_ratio=_ADAMW_RATIO,
        assumptions=_assumptions(model, steadiness),
    )


def _in_words(steadiness: Steadiness) -> str:
    """How steady the measurements were, for people."""
    verdict = "" if steadiness.is_steady else f"NOT steady to {show_percent(steadiness.wanted)}: "
    return (
        f"{verdict}measured in {steadiness.num_rounds} rounds over {show_seconds(steadiness.seconds)}; all units "
        f"together are steady to {show_percent(steadiness.overall)}, the least steady one ({steadiness.worst_unit}) "
        f"to {show_percent(steadiness.worst)}"
    )


def _rounds(
    stands: Sequence[Sequence["Stand"]],
    names: Sequence[str],
    started: float,
    limit_s: float,
    wanted: float,
    report: Callable[[Steadiness], None] | None,
) -> tuple[list[list[list["Passes"]]], Steadiness]:
    """`turns[size][unit]`: all sizes and units in turn, so that a slow moment of the machine hits all alike."""
    from penstock.profiler.block_passes import take_turns

    turns: list[list[list[Passes]]] = [[[] for _ in size] for size in stands]
    while True:
        for size, taken in zip(stands, turns, strict=True):
            for passes, turn in zip(take_turns(size), taken, strict=True):
                turn.append(passes)
        steadiness = judge(
            names,
            [[[passes.forward_s + passes.both_s for passes in unit] for unit in size] for size in turns],
            seconds=time.perf_counter() - started,
            wanted=wanted,
        )
        if report is not None:
            report(steadiness)
        if steadiness.num_rounds >= _FEWEST_ROUNDS and (steadiness.is_steady or steadiness.seconds >= limit_s):
            return turns, steadiness


def _stands(
    blocks: Sequence["Block"],
    sample: tuple[Any, Any],
    loss: Callable[..., Any],
    rows: int,
    device: "torch.device",
) -> "tuple[Stand, ...]":
    from penstock.model import with_rows
    from penstock.profiler.block_passes import set_up

    inputs, targets = with_rows(sample, rows)
    criterion = loss if targets is None else lambda output: loss(output, targets)
    try:
        return set_up(blocks, inputs, criterion, device)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"the model and its loss do not run on {rows} rows: {type(error).__name__}: {error}",
            hint="Give what the loss compares with as targets, so that it has as many rows, or name other rows.",
        ) from error


def _units(
    blocks: Sequence["Block"],
    stands: Sequence[Sequence["Stand"]],
    sizes: Sequence[int],
    turns: Sequence[Sequence[Sequence["Passes"]]],
    device: "torch.device",
) -> tuple[Unit, ...]:
    from penstock.model import is_compiled, kind_of
    from penstock.profiler.block_passes import step_s

    kind = kind_of(device)
    units = []
    for number, block in enumerate(blocks):
        step = step_s(block, device)
        counted = [size[number].bytes() for size in stands]
        units.append(
            Unit(
                name=block.name,
                parameter_bytes=_bytes(block, block.parameters),
                sizes=tuple(
                    Sizes(micro_batch_size=rows, cut_bytes=count.cut, saved_bytes=count.saved)
                    for rows, count in zip(sizes, counted, strict=True)
                ),
                times=tuple(
                    _times(kind, rows, size[number], step, is_whole=is_compiled(block.module))
                    for rows, size in zip(sizes, turns, strict=True)
                ),
            )
        )
    return tuple(units)


def _times(kind: str, rows: int, turns: Sequence["Passes"], step: float, *, is_whole: bool) -> Times:
    """Medians. The weight gradient is what the whole backward takes longer than the one to the inputs, each round.

    With `is_whole` both gradients are made at once.
    """
    beyond_s = 0.0 if is_whole else max(0.0, statistics.median(turn.both_s - turn.input_s for turn in turns))
    return Times(
        kind=kind,
        micro_batch_size=rows,
        forward_s=statistics.median(turn.forward_s for turn in turns),
        input_grad_s=statistics.median(turn.both_s if is_whole else turn.input_s for turn in turns),
        weight_grad_s=beyond_s,
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
    """The numbers of rows to measure, the most first."""
    if any(size < 1 for size in rows):
        raise InputError(f"a micro-batch has at least 1 row, not {min(rows)}")
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
            hint="Measuring needs real tensors: penstock.materialize(model) makes them.",
        )
    return parameter.device


def _assumptions(model: "nn.Module", steadiness: Steadiness) -> tuple[str, ...]:
    first = _in_words(steadiness)
    return (
        first[0].upper() + first[1:] + ".",
        "The weight gradient is what the whole backward takes longer than the gradient of the inputs alone.",
        "The optimizer is AdamW, in the parameters' own precision: its step is measured, its state is 2 x parameters.",
        *(() if model.training else ("The model was in evaluation mode.",)),
    )
