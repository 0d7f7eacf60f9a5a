"""Measurement of a model: the passes of every block are timed in rounds until the medians are steady."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import InputError, PenstockError
from penstock.profile import Profile, TrainingPrecision, find_precision
from penstock.profiler.layer_costs import largest_parameter, measured_layers, ties
from penstock.profiler.steadiness import Steadiness, assess
from penstock.profiler.training_precision import describe_optimizer
from penstock.units import show_count, show_percent, show_seconds

if TYPE_CHECKING:
    import torch
    from torch import nn

    from penstock.model import Block
    from penstock.profiler.block_passes import BlockHarness, Passes
    from penstock.runtime.stage import Instrumentation

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
    blocks: "Sequence[str] | Sequence[Block] | None" = None,
    micro_batch_sizes: Sequence[int] = (),
    seconds: float = DEFAULT_SECONDS,
    steady: float = DEFAULT_STEADY,
    name: str = "",
    report: Callable[[Steadiness], None] | None = None,
    precision: str | None = None,
) -> Profile:
    """Measure the layers of a model on its device: `penstock.profile` without the runtime overhead.

    Args and errors are those of `penstock.profile`. `blocks` may also be the result of `find_chain`. With a precision
    other than None, the caller must be within `in_precision`.
    """
    recipe = None if precision is None else find_precision(precision)
    chain = find_chain(model, blocks, inputs)

    from penstock.device import is_accelerator
    from penstock.model import (
        bytes_of,
        check_rows,
        keep_freed_memory,
        plain_inputs,
        preserve_state,
        rows_of,
        with_rows,
    )
    from penstock.profiler.block_passes import instrument
    from penstock.profiler.restrictions import find_restrictions
    from penstock.runtime.stage import keep_casts

    inputs, targets = plain_inputs(inputs), plain_inputs(targets)
    # As training does, which follows.
    check_rows((inputs, targets))

    started = time.perf_counter()
    device = _device_of(model)
    if not is_accelerator(device):
        # As in training. Otherwise the times of large tensors would include page faults.
        keep_freed_memory()
    wanted = _sizes(micro_batch_sizes, rows_of(inputs))
    own_rows = max(micro_batch_sizes) if micro_batch_sizes else rows_of(inputs)
    with preserve_state(model), keep_casts():
        instrumentations = instrument(model, chain, device)
        harnesses, refused = _build_harnesses(chain, instrumentations, (inputs, targets), loss, wanted, device)
        sizes = tuple(size[0].rows for size in harnesses)
        turns, steadiness = _rounds(harnesses, [block.name for block in chain], started, seconds, steady, report)
        layers = measured_layers(chain, harnesses, sizes, turns, device)
        restrictions = find_restrictions(model, chain, harnesses)
    return Profile(
        name=name or type(model).__name__,
        micro_batch_size=own_rows,
        units=layers.units,
        input_bytes=bytes_of(with_rows(inputs, own_rows)),
        ties=ties(chain),
        largest_parameter_bytes=tuple(largest_parameter(block) for block in chain),
        gradient_ratio=1.0 if recipe is None else recipe.gradient_ratio,
        optimizer_ratio=_ADAMW_RATIO if recipe is None else recipe.adamw_ratio,
        assumptions=(*_assumptions(model, steadiness, recipe), *refused, *_obstacles(harnesses[0])),
        is_steady=steadiness.is_steady,
        restrictions=restrictions,
        spread=layers.spread,
    )


def find_chain(
    model: "nn.Module", blocks: "Sequence[str] | Sequence[Block] | None", inputs: Any
) -> "tuple[Block, ...]":
    """Return the blocks of a model, unless they are given already. Finding them runs the model several times."""
    try:
        from penstock.model import Block, find_blocks, plain_inputs
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError("measuring a model needs torch", hint="pip install 'penstock[run]'") from None

    found = tuple(block for block in blocks or () if isinstance(block, Block))
    if found:
        return found
    _device_of(model)
    return find_blocks(model, blocks, plain_inputs(inputs))  # type: ignore[arg-type]


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
            [[[passes.forward_s + passes.backward_s for passes in unit] for unit in size] for size in turns],
            seconds=time.perf_counter() - started,
            tolerance=tolerance,
        )
        if report is not None:
            report(steadiness)
        if steadiness.num_rounds >= _FEWEST_ROUNDS and (steadiness.is_steady or steadiness.seconds >= limit_s):
            return turns, steadiness


def _build_harnesses(
    blocks: Sequence["Block"],
    instrumentations: Sequence["Instrumentation"],
    sample: tuple[Any, Any],
    loss: Callable[..., Any] | None,
    sizes: "_Sizes",
    device: "torch.device",
) -> "tuple[list[tuple[BlockHarness, ...]], tuple[str, ...]]":
    """Return the harnesses of each size on which the model runs, and an assumption for each size left out."""
    from penstock.model import mean_loss, with_rows
    from penstock.profiler.block_passes import build_harnesses

    harnesses, refused = [], []
    for rows in sizes.sizes:
        inputs, targets = with_rows(sample, rows)
        try:
            criterion = mean_loss(loss, targets)
            harnesses.append(build_harnesses(blocks, instrumentations, inputs, rows, criterion, device))
        except (RuntimeError, ValueError, TypeError, IndexError, PenstockError) as error:
            if rows == sizes.optional:
                what = error.what if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
                refused.append(
                    f"Times are proportional to rows: the model does not run on {show_count(rows, 'row')} ({what})."
                )
                continue
            if isinstance(error, PenstockError):
                raise
            raise InputError(
                f"the model and its loss fail on {rows} rows: {type(error).__name__}: {error}",
                hint="Pass the targets of the loss as targets, so that they have the same rows; or choose other "
                "micro-batch sizes.",
            ) from error
    return harnesses, tuple(refused)


class _Sizes(NamedTuple):
    """Micro-batch sizes to measure, the largest first."""

    sizes: tuple[int, ...]
    optional: int | None = None
    """The size that is left out if the model does not run on it: some models refuse a single row."""


def _sizes(rows: Sequence[int], sample_rows: int) -> _Sizes:
    """Return the micro-batch sizes to measure."""
    if any(size < 1 for size in rows):
        raise InputError(f"micro-batch size must be at least 1, not {min(rows)}")
    if rows:
        return _Sizes(tuple(sorted(set(rows), reverse=True)))
    if sample_rows == 1:
        return _Sizes((2, 1), optional=2)
    return _Sizes((sample_rows, sample_rows // 2), optional=1)


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


def _obstacles(harnesses: "Sequence[BlockHarness]") -> tuple[str, ...]:
    refused = [harness for harness in harnesses if harness.obstacle]
    if not refused:
        return ()
    first = refused[0]
    what = "run" if first.instrumentation is None else "split the backward of"
    layers = f"{show_count(len(refused), 'layer')}, first {first.block.name}"
    return (f"The runtime cannot {what} {layers}: {first.obstacle.rstrip('.')}.",)


def _assumptions(model: "nn.Module", steadiness: Steadiness, precision: TrainingPrecision | None) -> tuple[str, ...]:
    first = _describe(steadiness)
    return (
        first[0].upper() + first[1:] + ".",
        "The weight gradient is the part of the backward that the runtime can defer.",
        describe_optimizer(precision),
        *(() if model.training else ("The model was in evaluation mode.",)),
    )
