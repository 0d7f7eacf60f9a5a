"""The training loop of a rank: loads the script's model, builds the pipeline, trains, and reports events."""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bundle import PlanBundle
from penstock.dist import Phase, status_board
from penstock.errors import InputError, ProfileWarning
from penstock.launch.model_script import ModelSpec, Script, load_script, run_in_script
from penstock.launch.ranks.checkpoints import Checkpoints
from penstock.launch.ranks.memory_copies import Copying, MemoryCopies
from penstock.launch.ranks.placement import place_model
from penstock.launch.ranks.samples import sample_timeline
from penstock.launch.ranks.stop_agreement import StopAgreement, Wish
from penstock.launch.runs import Began, Event, MemoryMeasured, Noted, Paused, Stepped, Stopping
from penstock.launch.train_options import TrainOptions
from penstock.profile import Profile

if TYPE_CHECKING:
    import torch

Report = Callable[[Event], None]

DEFAULT_LR = 3e-4
REPEATED = re.compile(r" \(\d+\)$")


def train_rank(
    options: TrainOptions,
    report: Report,
    *,
    single_process: bool = False,
    keep_gradients: bool = False,
    reference: str | None = None,
    slices: str | None = None,
    run_folder: Path | None = None,
    copying: Copying | None = None,
) -> dict[str, Any]:
    """Train.

    Args:
        options: The options of the run.
        report: Receives the events of this rank.
        single_process: Train the whole model in this process.
        keep_gradients: Keep the gradients of every step.
        reference: A file with the state of a single process, whose gradients every step uses.
        slices: A file with the program slices of the ranks; None: every rank lowers the program.
        run_folder: The directory of the run, where a signal may ask the ranks to end early.
        copying: How the state is copied in memory; None: it is not.

    Returns:
        This rank's parameters and buffers at the end, the kept gradients or their differences to the reference, and
        what the loss is a mean over.
    """
    import torch
    import torch.distributed as dist

    from penstock.device import memory_use
    from penstock.runtime import Recipe, train_steps
    from penstock.runtime.verify import ReferenceGradients, copy_gradients

    options, bundle = options.open()
    assert options.global_batch_size is not None, "TrainOptions.open sets it"
    expected_rows = options.global_batch_size * options.gradient_accumulation_steps
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    board = status_board()
    board.enter_phase(Phase.START_UP, text="running the script")
    _seed(options.seed)
    script = load_script(options.script)
    spec = script.make_model()
    device = place_model(spec.model, options.device, bundle)
    if not single_process:
        _join(options, device)
    is_first = single_process or dist.get_rank() == 0

    def train() -> dict[str, Any]:
        board.enter_phase(Phase.MAKING)
        make_trainer = _single_process if single_process else partial(_pipeline, slices=slices)
        trainer = make_trainer(spec, bundle, options, device)
        optimizer = _optimizer(script, trainer, options)
        make_scheduler = script.find("make_scheduler")
        scheduler = make_scheduler(optimizer) if make_scheduler else None
        checkpoints = Checkpoints(trainer, scheduler, options, report)
        copies = MemoryCopies(trainer, scheduler, copying, report if is_first else lambda _event: None)
        copied = copies.resume()
        first = checkpoints.resume() if copied is None else copied
        if copied is None:
            copies.begin(first)
        recipe = Recipe(options.steps, options.gradient_accumulation_steps, options.clip_grad_norm, first)
        batches = _batches(script, spec, options, report)
        next_sample, num_done = 0, first
        stop = StopAgreement(run_folder, is_distributed=not single_process)
        kept: list[Any] = []
        pieces = {} if single_process else trainer.parameter_slices()
        references = ReferenceGradients(torch.load(reference, map_location="cpu")["gradients"]) if reference else None

        def begin_step(step: int) -> None:
            board.enter_phase(Phase.STEP, step)
            report(Began(step))

        def before_optimizer() -> None:
            if keep_gradients:
                kept.append(copy_gradients(trainer.named_parameters()))
            if references is not None:
                references.replace(trainer.named_parameters(), pieces)

        for result in train_steps(
            trainer,
            optimizer,
            batches,
            recipe,
            scheduler=scheduler,
            on_step=begin_step,
            before_optimizer=before_optimizer,
        ):
            num_done += 1
            if result.num_rows != expected_rows:
                report(
                    Noted(
                        f"the script's batches do not have {options.global_batch_size} rows, the global batch size of "
                        "the prediction"
                    )
                )
            if is_first:
                report(Stepped(result.step, result.loss, result.num_rows, result.seconds))
            if not single_process and (result.step >= next_sample or num_done == options.steps):
                next_sample = result.step + sample_timeline(trainer, result, report)
            checkpoints.after_step(num_done)
            copies.after_step(num_done)
            wish = stop.after_step(result.step, result.seconds) if num_done < options.steps else Wish.GO_ON
            if num_done < options.steps and (wish is Wish.SWITCH or copies.pauses_after(num_done)):
                checkpoints.finish_pending()
                copies.complete(num_done)
                report(Paused(num_done))
                break
            if wish is Wish.STOP:
                checkpoints.finish(num_done)
                report(Stopping(num_done, is_saved=options.checkpoint is not None))
                break
        else:
            checkpoints.finish(num_done)
            if num_done < options.steps:
                report(Noted(f"the script's batches ended after {num_done} of {options.steps} steps"))
        board.enter_phase(Phase.SHUTDOWN)
        used = memory_use(device)
        if used is not None:
            report(MemoryMeasured(used.peak_bytes, used.reserved_bytes, used.outside_bytes, used.total_bytes))
        named = trainer.full_parameters()
        trainer.close()
        gradients = kept if references is None else references.errors
        reduction = "" if single_process else trainer.loss_reduction()
        return {
            "parameters": named,
            "buffers": trainer.named_buffers(),
            "gradients": gradients,
            "loss_reduction": reduction,
        }

    with _reported_warnings(report):
        state: dict[str, Any] = run_in_script(script.path, train)
    if not single_process:
        dist.destroy_process_group()
    return state


@contextmanager
def _reported_warnings(report: Report) -> Iterator[None]:
    """Report warnings that the trained model differs from the profiled one."""
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *more: Any) -> None:
            if issubclass(category, ProfileWarning):
                report(Noted(str(message)))
            else:
                show_other(message, category, *more)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _seed(seed: int) -> None:
    """Seed every generator that a script may use, the same on every rank."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - for scripts that use it
    torch.manual_seed(seed)


def _join(options: TrainOptions, device: "torch.device") -> None:
    import os

    from penstock.device import group_backend
    from penstock.dist import join_process_group, translate_errors

    with translate_errors(lambda: f"rank {os.environ.get('RANK', '?')}, joining the other ranks"):
        join_process_group(group_backend(device), options.timeout, options.startup_s, lazily=True)


def _pipeline(
    spec: ModelSpec, bundle: PlanBundle, options: TrainOptions, device: "torch.device", *, slices: str | None
) -> Any:
    from penstock.device import is_accelerator
    from penstock.runtime import Pipeline

    checks: dict[str, Any] = {"check_finite": True} if options.check_finite else {}
    return Pipeline(
        spec.model,
        bundle.plan,
        _loss(spec),
        profile=bundle.profile,
        cluster=bundle.cluster,
        blocks=_block_names(spec, bundle.profile),
        inputs=spec.inputs,
        seed=options.seed,
        timeout_s=options.timeout,
        checkpoint_timeout_s=options.checkpoint_timeout,
        device="cpu" if options.device == "cpu" else device if is_accelerator(device) else None,
        any_kind=options.any_kind,
        precision=options.precision,
        slices=slices,
        **checks,
    )


def _single_process(spec: ModelSpec, bundle: PlanBundle, options: TrainOptions, device: "torch.device") -> Any:
    from penstock.model import find_blocks
    from penstock.runtime.layout import check_planned_model
    from penstock.runtime.state import materialize
    from penstock.runtime.verify import SingleProcess

    materialize(spec.model, seed=options.seed, device=device)
    blocks = find_blocks(spec.model, _block_names(spec, bundle.profile), spec.inputs)
    check_planned_model(bundle.plan, blocks, bundle.profile)
    return SingleProcess(
        spec.model, blocks, bundle.plan.num_microbatches, _loss(spec), seed=options.seed, precision=options.precision
    )


def _block_names(spec: ModelSpec, profile: Profile) -> list[str] | None:
    """The names of the profiled blocks, if the model has modules of these names; None: find the blocks."""
    from penstock.model import is_plain_sequential

    names = [unit.name for unit in profile.units]
    if is_plain_sequential(spec.model) and names == list(spec.model._modules):
        return None
    known = dict(spec.model.named_modules(remove_duplicate=False))
    # A block that is called repeatedly is several units, numbered behind the name.
    names = [name if name in known else REPEATED.sub("", name) for name in names]
    return names if all(name in known for name in names) else None


def _loss(spec: ModelSpec) -> Callable[[Any, Any], Any] | None:
    """A loss of two arguments, as pipelines call it."""
    loss = spec.loss
    if loss is None or spec.targets is not None:
        return loss
    return lambda output, targets: loss(output) if targets is None else loss(output, targets)


def _optimizer(script: Script, trainer: Any, options: TrainOptions) -> Any:
    import torch

    make = script.find("make_optimizer")
    if make is None:
        return trainer.optimizer(torch.optim.AdamW, lr=DEFAULT_LR if options.lr is None else options.lr)
    if options.lr is not None:
        raise InputError(
            "--lr has no effect: the script defines make_optimizer", hint="Set it in make_optimizer, or leave it out."
        )

    def make_checked(parameters: list[Any]) -> torch.optim.Optimizer:
        optimizer = make(parameters)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise InputError(
                f"make_optimizer returned a {type(optimizer).__name__}", hint="Return an optimizer of torch.optim."
            )
        allowed = set(map(id, parameters))
        if any(id(item) not in allowed for group in optimizer.param_groups for item in group["params"]):
            raise InputError(
                "make_optimizer uses parameters that are not in its argument",
                hint="Use the parameters of its argument only: a rank trains a part of the model.",
            )
        return optimizer

    return trainer.optimizer(make_checked)


def _batches(script: Script, spec: ModelSpec, options: TrainOptions, report: Report) -> Iterator[Any]:
    from penstock.runtime import repeat_sample, with_own_rng

    assert options.global_batch_size is not None, "TrainOptions.open sets it"
    make = script.find("make_batches")
    if make is None:
        report(Noted("the script has no make_batches: every step trains on the sample batch of make_model"))
        return repeat_sample((spec.inputs, spec.targets), options.global_batch_size)
    _seed(options.seed)
    return with_own_rng(make(options.global_batch_size), options.seed, has_targets=spec.loss is not None)
