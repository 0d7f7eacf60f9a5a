"""The blocks of a model that is not an nn.Sequential: detected or named, traced, and checked against the model."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.block_detection import detect_blocks
from penstock.model.block_forward import ForwardTraces, InputForm, PartialForward, Trace, trial_run
from penstock.model.blocks import Activations, Block, assign_leftovers, call_model
from penstock.model.other_random import not_repeatable, other_random_numbers
from penstock.model.packed_rows import unfold_packed
from penstock.model.requirements import refuse_autograd, require_every_layer
from penstock.model.tracing import COARSER_BLOCKS, Abstraction, Run, have_same_results, run_and_record
from penstock.model.trees import (
    first_difference,
    map_tensors,
    rows_of,
    same_bits,
    tensors_of,
    with_rows,
    with_shorter_rows,
)

_log = logging.getLogger(__name__)


def trace_blocks(
    model: nn.Module, names: Sequence[str] | None, inputs: Activations, device: torch.device | None = None
) -> tuple[Block, ...]:
    """Return the named or detected blocks. Their chain matches the model on these inputs to the bit.

    A model on the meta device is traced without data; its blocks run on `device`.
    """
    try:
        blocks, trace = _trace(model, names, inputs, device)
    except InputError:
        require_every_layer(model)
        raise
    require_every_layer(model, trace.record)
    return blocks


def _trace(
    model: nn.Module, names: Sequence[str] | None, inputs: Activations, device: torch.device | None
) -> tuple[tuple[Block, ...], Trace]:
    on_meta = any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    if on_meta:
        return _trace_meta(model, names, inputs, device or torch.device("cpu"))
    with trial_run(model), torch.no_grad(), refuse_autograd():
        # A forward may store something in its first call, such as the kind of its loss.
        call_model(model, _copied(inputs))
    _require_same_folded(model, inputs)
    if names is None:
        with trial_run(model):
            names = detect_blocks(model, _copied(inputs))
    _require_blocks(model, names)
    trials = _run_trials(model, names, inputs)
    place = next((tensor.device for tensor in (*model.parameters(), *tensors_of(inputs))), torch.device("cpu"))
    traces = _traces(model, names, inputs, place, [trial.run for trial in trials])
    trace = traces.find(inputs)
    blocks = _blocks(traces, trace)
    for trial in trials[:2]:
        _require_same_numbers(model, names, traces, trial)
    return blocks, trace


def _trace_meta(
    model: nn.Module, names: Sequence[str] | None, inputs: Activations, device: torch.device
) -> tuple[tuple[Block, ...], Trace]:
    inputs = map_tensors(
        lambda tensor: torch.zeros_like(tensor, device=device) if tensor.is_meta else tensor,
        inputs,
    )
    fakes = Abstraction((), None, device)
    with trial_run(model), fakes.fake_state(model):
        if names is None:
            names = detect_blocks(model, _copied(inputs), fakes)
        _require_blocks(model, names)
        runs = [run_and_record(model, names, _copied(inputs), Abstraction((), None, device))]
    traces = _traces(model, names, inputs, device, runs)
    trace = traces.find(inputs)
    return _blocks(traces, trace), trace


class _Trial(NamedTuple):
    """A recorded run of the whole model, and its buffers after the run."""

    inputs: Activations
    run: Run
    buffers: dict[str, Tensor]


def _traces(
    model: nn.Module, names: Sequence[str], inputs: Activations, device: torch.device, runs: Sequence[Run]
) -> ForwardTraces:
    return ForwardTraces(
        model=model,
        names=tuple(names),
        device=device,
        samples=tuple(run.calls for run in runs),
        guide=runs[0].record,
        form=InputForm(inputs),
    )


def _run_trials(model: nn.Module, names: Sequence[str], inputs: Activations) -> list[_Trial]:
    """Run the model on the inputs, on twice the rows (some modules refuse a single row), and on shorter rows."""
    rows = rows_of(inputs)
    trials = [_run_trial(model, names, inputs)]
    more = with_rows(inputs, 2 * rows)
    try:
        trials.append(_run_trial(model, names, more))
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"the model runs on {rows} rows but fails on {2 * rows}: {type(error).__name__}: {error}",
            hint="Every input tensor with the same first dimension as the first tensor is assumed to have rows. If one "
            "of them has none, use a sample with another number of rows.",
        ) from error
    for number, shorter in enumerate(with_shorter_rows(inputs)):
        try:
            trial = _run_trial(model, names, shorter)
        except Exception:  # models of a fixed length, or of multiples of one, or tensors whose lengths must be equal
            _log.debug("%s does not run on shorter rows", type(model).__name__)
            continue
        # The later variants may be inputs that the model never gets. Another path there says nothing.
        if not number or have_same_results(trial.run.calls, trials[0].run.calls):
            trials.append(trial)
    return trials


def _run_trial(model: nn.Module, names: Sequence[str], inputs: Activations) -> _Trial:
    with trial_run(model):
        run = run_and_record(model, names, _copied(inputs))
        return _Trial(inputs, run, _copied(dict(model.named_buffers())))


def _copied(tree: Any) -> Any:
    """Copy all tensors, so that in-place changes do not reach the caller's."""
    return map_tensors(lambda tensor: tensor.detach().clone(), tree)


def _require_blocks(model: nn.Module, names: Sequence[str]) -> None:
    if not names:
        raise InputError("the list of blocks is empty", hint="Name at least one, or pass None to detect them.")
    known = dict(model.named_modules(remove_duplicate=False))
    for name in names:
        if not name or name not in known:
            raise InputError(
                f"{type(model).__name__} has no submodule {name!r}",
                hint="Use names of model.named_modules(), such as 'layers.0'.",
            )
    for name in names:
        for other in names:
            if known[other] is not known[name] and any(known[other] is inner for inner in known[name].modules()):
                raise InputError(f"block {other!r} is part of block {name!r}", hint="Name only one of them.")


def _blocks(traces: ForwardTraces, trace: Trace) -> tuple[Block, ...]:
    model = traces.model
    parameter_names = {parameter: name for name, parameter in model.named_parameters()}
    buffer_names = {buffer: name for name, buffer in model.named_buffers()}
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    blocks: list[Block] = []
    for unit, (name, module) in enumerate(zip(traces.names, traces.modules, strict=True)):
        events = [
            event
            for event in trace.record.events
            if event.unit <= unit and trace.flow.runs(event, unit) and not event.is_metadata_query
        ]
        used = [key for event in events for key in event.parameters]
        held = [key for event in events for key in event.buffers]
        earlier = traces.names[:unit].count(name)
        blocks.append(
            Block(
                name=f"{name} ({earlier + 1})" if earlier else name,
                module=module,
                call=PartialForward(traces, unit),
                needs_inputs=True,
                parameters={
                    **{parameter_names[parameter]: parameter for parameter in module.parameters()},
                    **{key: parameters[key] for key in used},
                },
                buffers={
                    **{buffer_names[buffer]: buffer for buffer in module.buffers()},
                    **{key: buffers[key] for key in held},
                },
            )
        )
    return assign_leftovers(blocks, model)


def _require_same_folded(model: nn.Module, inputs: Activations) -> None:
    """Check that the model takes tensors of packed entries with a dimension of rows, too.

    Raises:
        InputError: It gives other results.
    """
    packed = unfold_packed(inputs)
    if packed is None:
        return
    outputs = []
    for variant in (inputs, packed):
        with trial_run(model), torch.no_grad():
            try:
                outputs.append(call_model(model, _copied(variant)))
            except Exception:  # a model that only takes one of the two forms
                return
    if not same_bits(*outputs):
        raise InputError(
            f"{type(model).__name__} gives other results if the entries of each row are a dimension of their own",
            hint="Flatten them in forward: tensors of the batch must have its rows as their first dimension.",
        )


def _require_same_numbers(model: nn.Module, names: Sequence[str], traces: ForwardTraces, trial: _Trial) -> None:
    """Run the chain, by the Python code of forward and by its recorded calls, and compare with the model to the bit.

    Raises:
        InputError: The chain or the model itself gives other results.
    """
    for may_replay in (False, True):
        chain = [PartialForward(traces, unit, may_replay) for unit in range(len(names))]
        inputs = _copied(trial.inputs)
        activations, all_activations = inputs, []
        with trial_run(model), torch.no_grad():
            for block in chain:
                activations = block(activations, inputs)
                all_activations.append(activations)
            buffers = _copied(dict(model.named_buffers()))
        if same_bits(activations, trial.run.output) and same_bits(buffers, trial.buffers):
            continue
        with other_random_numbers() as drawn:
            again = _run_trial(model, names, trial.inputs)
        leaf = first_difference(again.run.output, trial.run.output)
        if leaf is not None:
            raise not_repeatable(model, leaf, drawn)
        flow, record = traces.find(trial.inputs).flow, trial.run.record
        wrong = names[-1]
        for name, passed, live in zip(names, all_activations, flow.live, strict=False):
            if any(value >= len(record.values) for value in live):
                break
            if not same_bits(passed, tuple(trial.run.tensors[value] for value in live)):
                wrong = name
                break
        raise InputError("running block by block changes the results", where=f"block {wrong!r}", hint=COARSER_BLOCKS)
