"""Forwards whose backward needs a message: those that are recomputed, and those with a remote backward."""

from collections.abc import Collection, Mapping

from penstock.errors import RunError
from penstock.program import Action
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages.routing import Message, Routing
from penstock.runtime.executor.protocols import RecomputeCheck, StageRunner, Transfer
from penstock.runtime.remote_backward import make_recompute_message
from penstock.runtime.stage import ComputeLoss, StageJob
from penstock.runtime.tensors import PackedPayload, Rows, share_memory


class BackwardInputs:
    """Runs these forwards, and keeps or sends the message for their backward.

    Args:
        routing: The layout from the view of this rank.
        runners: The stages of this rank.
        transfer: Remote backwards.
        check_recompute: Checks forwards that change buffers.
        split: Split backwards of all ranks: rank, stage, micro-batch.
    """

    def __init__(
        self,
        routing: Routing,
        runners: Mapping[int, StageRunner],
        transfer: Transfer,
        check_recompute: RecomputeCheck,
        split: Collection[tuple[int, int, int]],
    ) -> None:
        self._routing = routing
        self._stages = routing.layout.stages
        self._rank = routing.rank
        self._runners = runners
        self._transfer = transfer
        self._check_recompute = check_recompute
        self._split = split
        self._changes_input: dict[int, bool] = {}
        """By stage: whether its forward has changed its input in place."""

    def make_job(
        self, iteration: Iteration, action: Action, rows: Rows, compute_loss: ComputeLoss | None, backward_rank: int
    ) -> StageJob:
        """Return the description of a forward whose backward runs on a given rank."""
        stage, microbatch = action.stage, action.microbatch
        defer = (backward_rank, stage, microbatch) in self._split
        # The graph of the last stage depends on how its loss is weighted.
        reduction = None if compute_loss is None else iteration.terms.reduction
        form = (iteration.signature, reduction)
        return StageJob(stage, iteration.step, rows, compute_loss, defer, form, iteration.tensors)

    def run_remote(
        self,
        iteration: Iteration,
        action: Action,
        inputs: PackedPayload,
        rows: Rows,
        compute_loss: ComputeLoss | None,
    ) -> PackedPayload:
        """Run a forward with a remote backward, which gets the saved tensors, or the input if that is not possible."""
        stage, microbatch = action.stage, action.microbatch
        view, runner = self._stages[stage], self._runners[stage]
        target = view.backward[view.replica(self._rank, backward=False)]
        job = self.make_job(iteration, action, rows, compute_loss, target)
        reason = self._transfer.reason(runner, inputs, job)
        if reason:
            return self.run_recomputed(iteration, action, inputs, rows, compute_loss, reason)
        description = self._routing.describe(action, iteration.step)
        out, message = self._transfer.run(runner, inputs, job, description)
        iteration.put((Message.SAVED_TENSORS, stage, microbatch), message, rows, [rows])
        return out

    def run_recomputed(
        self,
        iteration: Iteration,
        action: Action,
        inputs: PackedPayload,
        rows: Rows,
        compute_loss: ComputeLoss | None,
        reason: str,
    ) -> PackedPayload:
        """Run a forward that is recomputed on this rank or another one. Its input is kept unchanged.

        Raises:
            RunError: The stage changes its input in place, and did not before.
        """
        stage = action.stage
        view, runner = self._stages[stage], self._runners[stage]
        used = inputs
        if self._changes_input.get(stage, True):
            used = inputs.with_tensors([tensor.clone() for tensor in inputs.tensors])
        versions = [tensor._version for tensor in used.tensors]
        buffers = runner.buffer_versions() if stage not in self._changes_input else None
        out, _ = runner.run(used, iteration.step, rows, compute_loss, keep=False, defer=False)
        has_changed = versions != [tensor._version for tensor in used.tensors]
        if has_changed and used is inputs:
            raise RunError(
                f"{self._routing.describe(action, iteration.step)}: the stage changed its input in place, but did not "
                "in an earlier forward",
                hint="Do not change the input of a layer in place, or plan this stage without recomputation and "
                "without a remote backward.",
            )
        self._changes_input[stage] = has_changed or self._changes_input.get(stage, False)
        if used is inputs and share_memory(out.tensors, inputs.tensors):
            # The next stage may change in place what this stage passes through.
            inputs = inputs.with_tensors([tensor.clone() for tensor in inputs.tensors])
        sync_sums = [] if runner.replica_sync is None else runner.replica_sync.sync_sums
        if buffers is not None and buffers != runner.buffer_versions():
            job = self.make_job(iteration, action, rows, compute_loss, self._rank)
            description = self._routing.describe(action, iteration.step)
            self._check_recompute(runner, inputs, job, out, sync_sums, description)
        is_sent = stage > 0 or self._stages[0].is_local(self._rank)
        message = make_recompute_message(inputs if is_sent else None, reason, sync_sums)
        if view.is_local(self._rank):
            iteration.saved_inputs[stage, action.microbatch] = message
        elif self._routing.sends_saved(stage):
            iteration.put((Message.SAVED_TENSORS, stage, action.microbatch), message, rows, [rows])
        return out
