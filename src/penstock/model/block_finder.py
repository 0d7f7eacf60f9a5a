"""The blocks of a model that is not an nn.Sequential: detected or named, traced, and checked against the model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.block_detection import detect_blocks
from penstock.model.blocks import Activations, Block, assign_leftovers, call_model
from penstock.model.cut_points import choose_cuts
from penstock.model.partial_forward import ForwardTrace, PartialForward, to_device
from penstock.model.row_shapes import infer_shapes
from penstock.model.state import preserve_state
from penstock.model.tracing import COARSER_BLOCKS, Run, find_flow, local_values, require_same_trace, run_and_record
from penstock.model.trees import map_tensors, rows_of, same_bits, tensors_of, with_rows


def trace_blocks(
    model: nn.Module, names: Sequence[str] | None, inputs: Activations, device: torch.device | None = None
) -> tuple[Block, ...]:
    """Return the named or detected blocks. Their chain matches the model on these inputs to the bit.

    A model on the meta device is traced there; its blocks run on `device`.
    """
    on_meta = any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    if on_meta:
        inputs = map_tensors(lambda tensor: tensor.to("meta"), inputs)
    with preserve_state(model), torch.no_grad():
        # A forward may store something in its first call, such as the kind of its loss.
        call_model(model, _copied(inputs))
    if names is None:
        with preserve_state(model):
            names = detect_blocks(model, _copied(inputs))
    _require_blocks(model, names)
    training_trace, evaluation_trace = _trace(model, names, inputs), _trace_evaluation(model, names, inputs)
    if on_meta and device is not None:
        return _blocks(
            to_device(training_trace.trace, device),
            None if evaluation_trace is None else to_device(evaluation_trace, device),
        )
    blocks = _blocks(training_trace.trace, evaluation_trace)
    if not on_meta:
        _require_same_numbers(training_trace, blocks)
    return blocks


class _Trial(NamedTuple):
    """A recorded run of the whole model, and its buffers after the run."""

    inputs: Activations
    run: Run
    buffers: dict[str, Tensor]


class _TracedModel(NamedTuple):
    """The trace of a model and the runs that it comes from."""

    trace: ForwardTrace
    trials: tuple[_Trial, _Trial]


def _trace(model: nn.Module, names: Sequence[str], inputs: Activations) -> _TracedModel:
    """Run the model on the inputs and on twice the rows (not on half the rows: some modules refuse a single row)."""
    more = with_rows(inputs, 2 * rows_of(inputs))
    trial = _run_trial(model, names, inputs)
    try:
        other = _run_trial(model, names, more)
    except (RuntimeError, IndexError, TypeError) as error:
        raise InputError(
            f"the model runs on {rows_of(inputs)} rows but fails on {rows_of(more)}: {type(error).__name__}: {error}",
            hint="Every input tensor with the same first dimension as the first tensor is assumed to have rows. If one "
            "of them has none, use a sample with another number of rows.",
        ) from error
    require_same_trace(trial.run.record, other.run.record)
    record = choose_cuts(trial.run.record, local_values(trial.run.record))
    trace = ForwardTrace(
        model=model,
        modules=tuple(model.get_submodule(name) for name in names),
        record=record,
        flow=find_flow(record),
        shapes=infer_shapes(record, other.run.record),
    )
    return _TracedModel(trace, (trial, other))


def _trace_evaluation(model: nn.Module, names: Sequence[str], inputs: Activations) -> ForwardTrace | None:
    """Trace forward in evaluation mode; None if that fails, or if the model is in evaluation mode already."""
    if not model.training:
        return None
    with preserve_state(model):
        model.eval()
        try:
            traced = _trace(model, names, inputs)
            if not any(trial.is_meta for trial in tensors_of(traced.trials[0].run.output)):
                _require_same_numbers(traced, _blocks(traced.trace, None))
        except Exception:  # evaluation may never be requested; if it is, the training trace is used
            return None
    return traced.trace


def _run_trial(model: nn.Module, names: Sequence[str], inputs: Activations) -> _Trial:
    with preserve_state(model):
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


def _blocks(trace: ForwardTrace, evaluation_trace: ForwardTrace | None) -> tuple[Block, ...]:
    parameter_names = {parameter: name for name, parameter in trace.model.named_parameters()}
    buffer_names = {buffer: name for name, buffer in trace.model.named_buffers()}
    parameters = dict(trace.model.named_parameters())
    buffers = dict(trace.model.named_buffers())
    blocks: list[Block] = []
    for unit, (name, module) in enumerate(zip(trace.record.blocks, trace.modules, strict=True)):
        events = [
            event
            for event in trace.record.events
            if event.unit <= unit and trace.flow.runs(event, unit) and not event.is_metadata_query
        ]
        used = [key for event in events for key in event.parameters]
        held = [key for event in events for key in event.buffers]
        earlier = trace.record.blocks[:unit].count(name)
        blocks.append(
            Block(
                name=f"{name} ({earlier + 1})" if earlier else name,
                module=module,
                call=PartialForward(
                    trace, unit, None if evaluation_trace is None else PartialForward(evaluation_trace, unit)
                ),
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
    return assign_leftovers(blocks, trace.model)


def _require_same_numbers(traced: _TracedModel, blocks: Sequence[Block]) -> None:
    """Run the chain and compare outputs and buffers with the model's own runs, to the bit."""
    trace = traced.trace
    for trial in traced.trials:
        all_activations = []
        with preserve_state(trace.model), torch.no_grad():
            activations = _copied(trial.inputs)
            for block in blocks:
                activations = block.call(activations)
                all_activations.append(activations)
            buffers = _copied(dict(trace.model.named_buffers()))
        if same_bits(activations, trial.run.output) and same_bits(buffers, trial.buffers):
            continue
        wrong = blocks[-1].name
        for block, handed, live in zip(blocks, all_activations, trace.flow.live, strict=False):
            if not same_bits(handed, tuple(trial.run.tensors[value] for value in live)):
                wrong = block.name
                break
        raise InputError("running block by block changes the results", where=f"block {wrong!r}", hint=COARSER_BLOCKS)
