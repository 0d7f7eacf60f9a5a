"""The blocks of a model that is not an nn.Sequential: found or named, looked at, and checked against the model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model.block_detection import detect
from penstock.model.blocks import Block, Carry, with_left_over
from penstock.model.cut_points import place_cuts
from penstock.model.partial_forward import Course, Entry, moved
from penstock.model.row_shapes import forms_of
from penstock.model.state import undone
from penstock.model.tracing import COARSER, Run, find_flow, local_values, require_same_course, run_and_record
from penstock.model.trees import map_tensors, rows_of, same_bits, tensors_of, with_rows


def blocks_of(
    model: nn.Module, names: Sequence[str] | None, inputs: Carry, device: torch.device | None = None
) -> tuple[Block, ...]:
    """The blocks of these names, or found ones. Their chain gives the same bits as the model on these inputs.

    A model on the meta device is looked at there; its blocks are made to run on `device`.
    """
    on_meta = any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    if on_meta:
        inputs = map_tensors(lambda tensor: tensor.to("meta"), inputs)
    if names is None:
        with undone(model):
            names = detect(model, _copied(inputs))
    _require_blocks(model, names)
    trained, evaluated = _look(model, names, inputs), _evaluated(model, names, inputs)
    if on_meta and device is not None:
        return _blocks(moved(trained.course, device), None if evaluated is None else moved(evaluated, device))
    blocks = _blocks(trained.course, evaluated)
    if not on_meta:
        _require_same_numbers(trained, blocks)
    return blocks


class _Trial(NamedTuple):
    """A recorded run of the whole model, and its buffers afterwards."""

    inputs: Carry
    run: Run
    buffers: dict[str, Tensor]


class _Look(NamedTuple):
    """What was learnt of a model, and the runs by which."""

    course: Course
    trials: tuple[_Trial, _Trial]


def _look(model: nn.Module, names: Sequence[str], inputs: Carry) -> _Look:
    """Run the model on the inputs and on twice as many rows (not on half as many: some modules refuse a single row)."""
    more = with_rows(inputs, 2 * rows_of(inputs))
    trial = _try(model, names, inputs)
    try:
        other = _try(model, names, more)
    except (RuntimeError, IndexError, TypeError) as error:
        raise InputError(
            f"the model runs on {rows_of(inputs)} rows, but not on {rows_of(more)}: {type(error).__name__}: {error}",
            hint="Every input tensor whose first dimension is as long as that of the first one is taken to have rows. "
            "If one of them has not, give a sample with another number of rows.",
        ) from error
    require_same_course(trial.run.record, other.run.record)
    record = place_cuts(trial.run.record, local_values(trial.run.record))
    course = Course(
        model=model,
        modules=tuple(model.get_submodule(name) for name in names),
        record=record,
        flow=find_flow(record),
        forms=forms_of(record, other.run.record),
    )
    return _Look(course, (trial, other))


def _evaluated(model: nn.Module, names: Sequence[str], inputs: Carry) -> Course | None:
    """The course of forward in evaluation mode; None if it can only be trained, or is in that mode anyway."""
    if not model.training:
        return None
    with undone(model):
        model.eval()
        try:
            looked = _look(model, names, inputs)
            if not any(trial.is_meta for trial in tensors_of(looked.trials[0].run.output)):
                _require_same_numbers(looked, _blocks(looked.course, None))
        except Exception:  # whatever it is, nobody has asked yet to evaluate; then the training course is tried
            return None
    return looked.course


def _try(model: nn.Module, names: Sequence[str], inputs: Carry) -> _Trial:
    with undone(model):
        run = run_and_record(model, names, _copied(inputs))
        return _Trial(inputs, run, _copied(dict(model.named_buffers())))


def _copied(tree: Any) -> Any:
    """The same with tensors of its own, so that nobody changes the caller's."""
    return map_tensors(lambda tensor: tensor.detach().clone(), tree)


def _require_blocks(model: nn.Module, names: Sequence[str]) -> None:
    if not names:
        raise InputError("no blocks are named", hint="Name at least one, or none to have them found.")
    known = dict(model.named_modules(remove_duplicate=False))
    for name in names:
        if not name or name not in known:
            raise InputError(
                f"{type(model).__name__} has no submodule {name!r}",
                hint="Names are those of model.named_modules(), such as 'layers.0'.",
            )
    for name in names:
        for other in names:
            if known[other] is not known[name] and any(known[other] is inner for inner in known[name].modules()):
                raise InputError(f"block {other!r} is a part of block {name!r}", hint="Name only one of them.")


def _blocks(course: Course, evaluated: Course | None) -> tuple[Block, ...]:
    parameter_names = {parameter: name for name, parameter in course.model.named_parameters()}
    buffer_names = {buffer: name for name, buffer in course.model.named_buffers()}
    parameters = dict(course.model.named_parameters())
    buffers = dict(course.model.named_buffers())
    blocks: list[Block] = []
    for unit, (name, module) in enumerate(zip(course.record.blocks, course.modules, strict=True)):
        events = [
            event
            for event in course.record.events
            if event.unit <= unit and course.flow.runs(event, unit) and not event.asks_form
        ]
        used = [key for event in events for key in event.parameters]
        held = [key for event in events for key in event.buffers]
        earlier = course.record.blocks[:unit].count(name)
        blocks.append(
            Block(
                name=f"{name} ({earlier + 1})" if earlier else name,
                module=module,
                call=Entry(course, unit, None if evaluated is None else Entry(evaluated, unit)),
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
    return with_left_over(blocks, course.model)


def _require_same_numbers(looked: _Look, blocks: Sequence[Block]) -> None:
    """Run the chain and compare it with the model's own runs, to the bit, buffers included."""
    course = looked.course
    for trial in looked.trials:
        carries = []
        with undone(course.model), torch.no_grad():
            carry = _copied(trial.inputs)
            for block in blocks:
                carry = block.call(carry)
                carries.append(carry)
            buffers = _copied(dict(course.model.named_buffers()))
        if same_bits(carry, trial.run.output) and same_bits(buffers, trial.buffers):
            continue
        wrong = blocks[-1].name
        for block, handed, live in zip(blocks, carries, course.flow.live, strict=False):
            if not same_bits(handed, tuple(trial.run.tensors[value] for value in live)):
                wrong = block.name
                break
        raise InputError("run block by block, the model gives other numbers", where=f"block {wrong!r}", hint=COARSER)
