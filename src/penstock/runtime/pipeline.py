"""`Pipeline`: trains a model with a plan."""

import logging
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from penstock.dist import translate_errors
from penstock.errors import InputError
from penstock.model import LossFunction, eval_mode, own_loss, plain_inputs, return_freed_memory
from penstock.plan import Plan
from penstock.program.proof import Proof
from penstock.runtime.assembly import assemble, forward_buffers
from penstock.runtime.executor import Executor, Iteration, clip_grads, gather_timeline
from penstock.runtime.health import RankStatus
from penstock.runtime.options import PipelineOptions
from penstock.runtime.remote_backward import AS_PLANNED, KEPT, NOT_RUN
from penstock.runtime.rng import forbid_untracked_draws
from penstock.runtime.sharding import require_elementwise
from penstock.runtime.stage import keep_casts
from penstock.runtime.state import DEFAULT_KEEP, LoadedCheckpoint, LoadedCopy, StateCopies
from penstock.runtime.tensors import count_rows, signature
from penstock.runtime.transport import open_control_group
from penstock.timeline import Timeline

if TYPE_CHECKING:
    from penstock.device import Mark

_log = logging.getLogger(__name__)


class Pipeline:
    """Trains a model with a plan, over the ranks of torch.distributed, with the results of a single process.

    Ranks are matched with the plan's devices by host, index and kind; without a cluster, and where these say nothing,
    rank k is the k-th device in use. Every rank makes the same calls with the same model
    and the same batches, and keeps only its own part of the model. A model on the meta device is materialized on
    `device`, each rank its own part (see `penstock.materialize`); any other model is moved there.

    Args:
        model: The model: a chain of layers.
        plan: The plan, for a profile of this model.
        loss: Loss function of output and targets. It returns the mean over their rows, or a sum and the count to
            divide it by, such as the summed loss of all tokens and their number. None: the model's own loss, which is
            `output.loss`, `output["loss"]`, the output itself, or the only single number of a tuple.
        **options: Keyword arguments, the fields of `PipelineOptions`:

            - profile, cluster: Those that the plan was made for. Without them, actions are ordered as if all layers
              took the same time.
            - blocks: Names of the modules that are the layers, if they are not found automatically.
            - inputs: Example inputs, if the layers can only be found by running the model.
            - seed: Seed of the random numbers in forwards.
            - timeout_s: Deadline of every wait for another rank, in seconds (120).
            - checkpoint_timeout_s: That of ranks that save or load a checkpoint (1800).
            - check_finite: Whether to stop at the first layer whose output is not finite.
            - device: Device of this rank: "cpu", "cuda", "cuda:1", "xpu", or "auto" for an accelerator if there is
              one. None: that of the model; the CPU for a model on the meta device. Only "cpu" lets a plan for GPUs
              train on CPUs.
            - any_kind: Whether devices may be of other kinds than those of the plan. Otherwise such a run is refused.
            - precision: "fp32", "tf32", "bf16", "fp16", "bf16-mixed" or "fp16-mixed". None: the model as it is.
            - loss_scale: The first loss scale of fp16 and fp16-mixed, a power of two (65536).
            - init: `penstock.pretrained(folder)` reads weights from files, on each rank its own part. A function fills
              modules without `reset_parameters`. "checkpoint": values are loaded later.
            - slices: A file of `penstock.save_slices` for this plan. Each rank loads its own actions from it, instead
              of lowering and proving the whole program.

    Raises:
        InputError: The model or the plan cannot be trained.
        MismatchError: The plan does not fit the model, or ranks have different inputs.
        ProofError: The plan's program cannot run.
        RunError: Another rank does not connect.

    Example:
        >>> pipe = penstock.Pipeline(model, plan, torch.nn.functional.mse_loss)  # doctest: +SKIP
        >>> optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-3)  # doctest: +SKIP
        >>> for inputs, targets in batches:  # doctest: +SKIP
        ...     optimizer.zero_grad()
        ...     loss = pipe.step(inputs, targets)
        ...     optimizer.step()
        >>> pipe.close()  # doctest: +SKIP
    """

    def __init__(self, model: nn.Module, plan: Plan, loss: LossFunction | None = None, **options: Any) -> None:
        chosen = PipelineOptions(**options)
        self._step = 0
        self._seed = chosen.seed
        self._running: Executor | None = None
        """The executor that runs or ran last."""
        self._has_run = False
        self._stepped: tuple[Mark, Mark] = (0.0, 0.0)
        """Span of the last optimizer step."""
        self._copies: StateCopies | None = None
        self._gathered: tuple[Mark, Mark] = (0.0, 0.0)
        """Span of the all-gather of parameters after it."""
        self._model = model
        self._parts = parts = assemble(model, plan, own_loss if loss is None else loss, chosen, self._status)
        self._layout, self._rank, self._runners = parts.layout, parts.rank, parts.runners
        self._transport, self._weight_return, self._heartbeat = parts.transport, parts.weight_return, parts.heartbeat
        self._lacks_values = parts.lacks_values

    @property
    def proof(self) -> Proof:
        """The proof of the whole program. With a file of slices it is made when it is first used."""
        return self._parts.compiled.proof

    def _status(self) -> RankStatus:
        if self._running is None:
            return RankStatus(self._step - 1, "between steps", 0.0, is_busy=False)
        return self._running.status(self._step - 1)

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters that this rank trains, by their names in the model, in the order of the model.

        With precision bf16 or fp16 these are the master weights, which hold the gradients between iterations.

        With a sharded optimizer these are the rank's share: whole parameters, and for those that the shares divide
        (`parameter_slices`) a piece of the shape (1, ..., 1, n).
        """
        return dict(self._parts.precision.parameters)

    def parameter_slices(self) -> dict[str, tuple[int, int]]:
        """Return which elements of a divided parameter this rank steps: by name, the first one and the end."""
        return {name: (part.start, part.stop) for name, part in self._parts.shards.slices.items()}

    def full_parameters(self) -> dict[str, Tensor]:
        """Return the values of `named_parameters` with divided parameters put together. Collective.

        Each of these is on the rank that has its first piece only.
        """
        slices, whole = self._parts.shards.slices, {}
        with self._heartbeat.guard():
            for name, values in self._parts.collect_whole(
                {name: {"value": item} for name, item in self.named_parameters().items() if name in slices}
            ).items():
                whole[name] = values["value"]
        named = {name: item.detach() for name, item in self.named_parameters().items() if name not in slices}
        return named | whole

    @property
    def loss_scale(self) -> float:
        """The loss scale of precision fp16 and fp16-mixed; 1 for the others."""
        return self._parts.precision.loss_scale

    @property
    def skips_step(self) -> bool:
        """Whether gradients of the last `step` are not finite, so that the optimizer step is skipped on all ranks."""
        return self._parts.precision.skips_step

    def named_buffers(self) -> dict[str, Tensor]:
        """Return the buffers of stages whose forward is on this rank, by their names in the model."""
        return forward_buffers(self._layout, self._rank, self._runners, self._model)

    def optimizer(self, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> torch.optim.Optimizer:
        """Create an optimizer of the parameters that this rank trains.

        After its step, updated weights are returned to the ranks that use them in forwards.

        Args:
            kind: Optimizer class, or a function that returns an optimizer of a list of parameters.
            **options: Passed to `kind`.

        Raises:
            InputError: The plan shards the optimizer, and it is not known to be elementwise.
        """
        parameters = list(self.named_parameters().values())
        # Torch refuses an optimizer without parameters. This dummy never gets a gradient.
        optimizer = kind(parameters or [nn.Parameter(torch.empty(0))], **options)
        if self._parts.has_shards:
            require_elementwise(optimizer)
        self._parts.checkpoints.add(optimizer)
        optimizer.register_step_pre_hook(lambda stepping, *_: self._before_step(stepping))
        optimizer.register_step_post_hook(lambda *_: self._after_step())
        return optimizer

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped = (self._parts.executor.mark(), 0.0)
        self._parts.precision.before_optimizer(optimizer)

    def _after_step(self) -> None:
        self._parts.precision.after_optimizer()
        mark = self._parts.executor.mark
        self._stepped = self._gathered = (self._stepped[0], mark())
        with self._heartbeat.guard():
            if self._parts.shards:
                self._parts.shards.gather(lambda: f"rank {self._rank}, step {self._step - 1}, gathering parameters")
                self._parts.precision.masters.note_versions()
                self._gathered = (self._stepped[1], mark())
            self._weight_return.start(self._step - 1)

    def last_timeline(self) -> Timeline | None:
        """Return the measured timeline of the last iteration on rank 0, and None on other ranks. Collective.

        Raises:
            InputError: No iteration has run yet.
        """
        if not self._has_run:
            raise InputError("no iteration has been run yet", hint="Call pipe.step first.")
        spans = self._parts.executor.spans_s()
        # If the optimizer has not stepped since, its step takes no time.
        ended_s = max((end for _, end in spans), default=0.0)
        begin_s, end_s = self._parts.executor.seconds(self._stepped)
        stepped_s = (begin_s, end_s) if begin_s >= ended_s else (ended_s, ended_s)
        if begin_s >= ended_s and self._parts.shards:
            gathered_s = self._parts.executor.seconds(self._gathered)
            spans = self._parts.executor.with_gathers(spans, (gathered_s[0], gathered_s[1]))
        with self._heartbeat.guard(), translate_errors(lambda: f"rank {self._rank}, gathering the timeline"):
            parts, layout = self._parts, self._layout
            return gather_timeline(lambda: self.proof, layout.devices, spans, stepped_s, parts.control, parts.exchange)

    def mechanisms(self) -> dict[int, str]:
        """Return for each stage of this rank how its backward gets the tensors of the forward.

        For a remote backward this is known after its first run: saved tensors sent, or forward recomputed, with the
        reason.
        """
        mechanisms = {}
        for number in self._runners:
            view = self._layout.stages[number]
            mechanisms[number] = AS_PLANNED if view.recompute else KEPT if view.is_local(self._rank) else NOT_RUN
        return mechanisms | self._parts.executor.mechanisms()

    def loss_reduction(self) -> str:
        """Return what the loss is, as the first iteration has found: "mean over rows", "sum and count", or labels.

        For a mean over labels, it names the tensor of the batch as `(inputs, targets)` holds it: `[0]['labels']`.
        """
        return self._parts.batch_loss.text

    def step(self, inputs: Any, targets: Any = None) -> Tensor:
        """Run one iteration on a batch, up to the optimizer step. Gradients equal those of a single process.

        Args:
            inputs: Inputs of the whole batch, the same on every rank. A tuple is the positional arguments of the
                model, a mapping its keyword arguments, anything else its only argument. The first dimension of every
                tensor is rows; a tensor whose first dimension is 1 beside others with more rows is the same for all.
            targets: Targets of the whole batch. None if the model computes its own loss.

        Returns:
            The loss of the whole batch, on every rank.

        Raises:
            InputError: The loss of a micro-batch is neither a mean over its rows or over its labels that are not -100,
                nor a sum and a count. Then micro-batches cannot be combined. The first steps find this out.
            RunError: The iteration failed on this rank or on another one.
        """
        iteration = self._make_iteration(self._step, inputs, targets, "step")
        self._step += 1
        began_s = perf_counter()
        self._parts.profile_drift.begin(iteration)
        loss = self._run(self._parts.executor, iteration)
        if not self._has_run:
            self._has_run = True
            _log.info("rank %d: first iteration ran in %.3f s", self._rank, perf_counter() - began_s)
        self._parts.profile_drift.finish()
        return loss

    def evaluate(self, inputs: Any, targets: Any = None) -> Tensor:
        """Return the loss of a batch, in eval mode and without gradients.

        Args:
            inputs: Inputs of the whole batch, as for `step`.
            targets: Targets of the whole batch.

        Returns:
            The loss of the whole batch, on every rank.
        """
        iteration = self._make_iteration(max(0, self._step - 1), inputs, targets, "evaluate")
        with eval_mode(self._model):
            return self._run(self._parts.evaluator, iteration)

    def clip_grad_norm(self, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False) -> Tensor:
        """Clip the norm of all gradients of the model, as `torch.nn.utils.clip_grad_norm_` does in one process.

        Collective. Call it between `step` and the optimizer step.

        Args:
            max_norm: Maximum norm of the gradients.
            norm_type: Type of the p-norm.
            error_if_nonfinite: Whether to raise an error if the norm is not finite.

        Returns:
            The norm before clipping.
        """
        with self._heartbeat.guard():
            total = self._parts.grad_norm.compute(norm_type)
        clip_grads(list(self.named_parameters().values()), total, max_norm, strict=error_if_nonfinite)
        return total

    def save(self, folder: str | Path, *, extra: Any = None, keep: int | None = DEFAULT_KEEP) -> Path:
        """Save a checkpoint: the model, its optimizers, the random state and the number of the next step.

        Collective. Call it between an optimizer step and the next iteration. Gradients are not saved.

        Args:
            folder: Folder of checkpoints, the same for all ranks.
            extra: More state, such as a scheduler's state_dict(). That of rank 0 is saved.
            keep: How many checkpoints remain in the folder; None for all.

        Returns:
            The path of the checkpoint.
        """
        self._require_values()
        path = self._parts.checkpoints.save(Path(folder), step=self._step, seed=self._seed, extra=extra, keep=keep)
        _log.info("rank %d: checkpoint of step %d saved: %s", self._rank, self._step, path)
        return path

    def start_save(self, folder: str | Path, *, extra: Any = None, keep: int | None = DEFAULT_KEEP) -> None:
        """Save a checkpoint while training goes on: copy the state to host memory, and write it in a thread.

        The checkpoint appears when `finish_save` has returned its path. Until then a failure loses it, and earlier ones
        are intact. The copy needs as much host memory as the state of this rank. Collective.

        Args:
            folder: As for `save`.
            extra: As for `save`.
            keep: As for `save`.
        """
        self._require_values()
        checkpoints = self._parts.checkpoints
        checkpoints.start_save(Path(folder), step=self._step, seed=self._seed, extra=extra, keep=keep)

    def finish_save(self, *, wait: bool = True) -> Path | None:
        """Finish the checkpoint that `start_save` has begun. Collective.

        `save`, `start_save`, `load` and `close` finish it too.

        Args:
            wait: Whether to wait until it is written. Otherwise call this again after the next step.

        Returns:
            The path of the checkpoint, or None: none has been started, or it is not yet written on all ranks.
        """
        path = self._parts.checkpoints.finish_save(wait=wait)
        if path is not None:
            _log.info("rank %d: checkpoint saved: %s", self._rank, path)
        return path

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model as `save_pretrained` of transformers does: safetensors files, and its configuration.

        Collective. Each rank writes tensors that it holds. Call it between an optimizer step and the next iteration.

        Args:
            folder: A new folder, the same for all ranks. It appears when all files are complete.

        Returns:
            The path of the folder.
        """
        self._require_values()
        path = self._parts.checkpoints.save_pretrained(Path(folder))
        _log.info("rank %d: weights of step %d saved: %s", self._rank, self._step, path)
        return path

    def load(self, folder: str | Path, *, step: int | None = None, optimizer: bool = True) -> LoadedCheckpoint:
        """Load a checkpoint that was saved with this plan or another one. Collective.

        Args:
            folder: Folder of checkpoints.
            step: Step of the checkpoint; None for the last one.
            optimizer: Whether to load the state of optimizers, which must have been created before.
        """
        self.finish_save()
        # Weights in transit must not overwrite the loaded ones.
        with self._heartbeat.guard():
            self._weight_return.finish_all()
        loaded = self._parts.checkpoints.load(Path(folder), step=step, with_optimizers=optimizer)
        self._after_load(loaded.step, loaded.seed)
        return loaded

    def open_copies(self, folder: str | Path, *, generation: int) -> None:
        """Prepare copies of the training state in memory, for `save_copy` and `load_copy`. Collective.

        Args:
            folder: A directory in memory (such as one in /dev/shm), which the ranks of this host share, and which
                outlives them. Each host has its own.
            generation: A number that is larger for every new set of ranks of a run.
        """
        checkpoints = self._parts.checkpoints
        with translate_errors(lambda: f"rank {self._rank}, preparing copies of the state"):
            group = open_control_group(self._parts.timeout_s)
        self._copies = StateCopies(checkpoints.rank_state, checkpoints.optimizers, Path(folder), generation, group)

    def save_copy(self, *, extra: Any = None, wait: bool = False) -> None:
        """Copy the state of training into memory that outlives this process. Collective.

        Call it between an optimizer step and the next iteration. What only this host has goes to another host, if there
        is one, beside the next iteration.

        Args:
            extra: More state. That of rank 0 is kept.
            wait: Whether to wait until the copy is complete on all ranks.
        """
        copies = self._require_copies()
        with self._heartbeat.guard():
            copies.save(step=self._step, seed=self._seed, extra=extra)
        if wait:
            self.finish_copy()

    def finish_copy(self) -> None:
        """Wait until the last copy is complete on all ranks. Collective."""
        with self._heartbeat.guard():
            self._require_copies().finish()

    def load_copy(self) -> LoadedCopy | None:
        """Restore the newest complete copy that ranks of earlier generations have made, under any plan. Collective.

        Each rank reads from the memory of its host, and receives from other hosts only what that lacks. The restored
        state is copied again at once, under the new plan. Then the old copies are removed.

        Returns:
            The copy; None if there is no complete one. Then nothing has changed.
        """
        copies = self._require_copies()
        with self._heartbeat.guard():
            self._weight_return.finish_all()
            loaded = copies.load()
            if loaded is None:
                return None
            self._after_load(loaded.step, loaded.seed)
            copies.save(step=self._step, seed=self._seed, extra=loaded.extra)
            copies.remove_older()
        _log.info("rank %d: copy of step %d restored", self._rank, loaded.step)
        return loaded

    def _require_copies(self) -> StateCopies:
        if self._copies is None:
            raise InputError("copies of the state are not open", hint="Call pipe.open_copies first, on every rank.")
        return self._copies

    def _after_load(self, step: int, seed: int) -> None:
        self._weight_return.note_versions()
        self._parts.precision.masters.note_versions()
        self._step, self._seed, self._lacks_values = step, seed, False
        for runner in self._runners.values():
            runner.reseed(seed)

    def _require_values(self) -> None:
        if self._lacks_values:
            raise InputError(
                'the parameters are not initialized: the pipeline was created with init="checkpoint"',
                hint="Call pipe.load(folder) first.",
            )

    def close(self) -> None:
        """Wait until everything is sent and saved, then release process groups and shared memory.

        Call it before the default process group is destroyed.
        """
        self.finish_save()
        with self._heartbeat.guard():
            self._weight_return.finish_all()
            if self._copies is not None:
                self._copies.close()
                self._copies = None
        self._transport.close()
        self._heartbeat.close()
        return_freed_memory()

    def _make_iteration(self, step: int, inputs: Any, targets: Any, purpose: str) -> Iteration:
        self._require_values()
        precision = self._parts.precision
        inputs, targets = precision.convert_inputs(plain_inputs(inputs)), plain_inputs(targets)
        num_rows = count_rows(inputs, targets)
        # Payloads of steps and evaluations differ in form: evaluation needs no gradients.
        form = (purpose, *signature(inputs, targets))
        rows = self._layout.rows(num_rows)
        parts = [part for replicas in rows[len(self._layout.stages) - 1] for part in replicas]
        inputs, targets, terms = self._parts.batch_loss.begin(inputs, targets, num_rows, parts)
        scale = precision.loss_scale
        return Iteration(step, inputs, targets, num_rows, rows, form, self._parts.device, terms=terms, loss_scale=scale)

    def _run(self, executor: Executor, iteration: Iteration) -> Tensor:
        parts = self._parts
        self._running = executor
        is_training = executor is parts.executor
        with self._heartbeat.guard(), parts.precision.context(), keep_casts():
            self._weight_return.check()
            if is_training:
                parts.precision.begin()
            parts.shared_buffers.begin()
            parts.batch_check.begin(iteration)
            parts.losses.open(iteration)
            # Gradients of sums are divided at the end. Those of earlier iterations are already.
            is_apart = is_training and parts.batch_loss.may_be_sum
            if is_apart:
                parts.sum_grads.begin()
            with forbid_untracked_draws(parts.device):
                executor.run(iteration, parts.losses.sender(iteration))
            parts.shared_buffers.check()
            loss = parts.losses.collect(iteration)
            if is_apart:
                parts.sum_grads.finish(iteration.terms.sum_factor(iteration.num_rows))
            if is_training:
                parts.precision.finish()
            parts.batch_loss.finish(iteration.terms)
            parts.batch_check.finish()
            return loss
