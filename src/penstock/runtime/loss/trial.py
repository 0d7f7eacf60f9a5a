"""Finds out, on the first rows of the last stage, how the losses of parts combine, and refuses other losses.

A loss function is a mean over rows unless it returns a sum and a count, or unless labels are ignored. A wrong weight of
a micro-batch would change gradients without any sign of it, so the weights are measured (`gradients.py`). Where labels
are ignored, the trial runs on other labels, with which every reduction gives other weights.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.model import LossFunction, is_own_loss, map_batch, map_tensors, tensors_of, without_auxiliary_losses
from penstock.runtime.loss.comparison import (
    LOW_PRECISION_TOLERANCE,
    MAX_PARTS,
    TOLERANCE,
    distinct_labels,
    measure_errors,
)
from penstock.runtime.loss.gradients import (
    Gradients,
    LossSample,
    double_batch,
    double_rows,
    has_row_lists,
    output_gradients,
    row_dims,
    run_whole,
    stage_gradients,
)
from penstock.runtime.loss.reduction import SUMS, Reduction
from penstock.runtime.rng import fork_rng
from penstock.runtime.stage import TorchStage
from penstock.runtime.tensors import Rows, pack, unpack
from penstock.units import show_percent

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Trial:
    """The rows to try, and where they are."""

    sample: LossSample
    labels: Mapping[str, Tensor]
    step: int
    base: int
    is_batch: bool
    is_varied: bool = False
    """Whether the labels are those of `distinct_labels`."""


class LossTrial:
    """Tries the loss of one rank's last stage.

    Args:
        model: The model.
        loss: The loss function.
    """

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        self._model = model
        self._loss = loss
        self._is_own = is_own_loss(loss)

    def find(
        self,
        runner: TorchStage,
        sample: LossSample,
        labels: Mapping[str, Tensor],
        reductions: Sequence[Reduction],
        *,
        step: int,
        base: int,
        is_batch: bool,
    ) -> Reduction:
        """Return the reduction of the loss.

        Args:
            runner: The last stage.
            sample: Some rows.
            labels: The labels of these rows that may be ignored.
            reductions: The possible reductions.
            step: Number of the iteration.
            base: Number of the first row in the batch.
            is_batch: Whether the inputs of the stage are those of the model.

        Raises:
            InputError: It is none of these.
        """
        trial = _Trial(sample, labels, step, base, is_batch)
        if len(reductions) > 1:
            trial = self._vary(runner, trial)
        _, is_sum = run_whole(runner, self._loss, trial.sample, step, base)
        if is_sum:
            reductions = [SUMS]
        if trial.sample.num_rows < 2:
            return reductions[0]
        errors = self._measure(runner, trial, reductions)
        if errors is None and len(reductions) == 1:
            return reductions[0]
        fitting = [item for item in reductions if errors and errors[item] <= _tolerance(runner, sample)]
        if len(fitting) == 1:
            return fitting[0]
        raise _refusal(trial.sample.num_rows, errors or {}, fitting, is_own=self._is_own)

    def check(
        self,
        runner: TorchStage,
        sample: LossSample,
        labels: Mapping[str, Tensor],
        reduction: Reduction,
        *,
        step: int,
        base: int,
        is_batch: bool,
    ) -> None:
        """Check that the loss has a given reduction. The arguments are those of `find`.

        Raises:
            InputError: It has not.
        """
        trial = _Trial(sample, labels, step, base, is_batch)
        errors = self._measure(runner, trial, [reduction])
        if errors and errors[reduction] > _tolerance(runner, sample):
            raise _refusal(sample.num_rows, errors, [], is_own=self._is_own)

    def _vary(self, runner: TorchStage, trial: _Trial) -> _Trial:
        """The same rows, at least two, with labels that tell the reductions apart, if the stage gets the labels."""
        if trial.sample.num_rows < 2:
            trial = _repeated(runner, trial)
        sample = trial.sample
        other = {name: distinct_labels(item) for name, item in trial.labels.items()}

        def change(tensor: Tensor) -> Tensor:
            for name, item in trial.labels.items():
                if tensor.shape == item.shape and tensor.dtype == item.dtype and torch.equal(tensor, item):
                    return other[name]
            return tensor

        inputs = [change(tensor) for tensor in sample.inputs.tensors]
        varied = replace(
            sample,
            inputs=sample.inputs.with_tensors(inputs),
            targets=map_tensors(change, sample.targets),
            batch=map_tensors(change, sample.batch),
        )
        found = [*inputs, *tensors_of((varied.targets, varied.batch))]
        if all(any(item is tensor for tensor in found) for item in other.values()):
            return replace(trial, sample=varied, labels=other, is_varied=True)
        return replace(trial, sample=sample)

    def _measure(
        self, runner: TorchStage, trial: _Trial, reductions: Sequence[Reduction]
    ) -> dict[Reduction, float] | None:
        """Measure each reduction; None if that shows nothing, as for a loss that draws random numbers."""
        with without_auxiliary_losses(self._model):
            return self._measure_loss(runner, trial, reductions)

    def _measure_loss(
        self, runner: TorchStage, trial: _Trial, reductions: Sequence[Reduction]
    ) -> dict[Reduction, float] | None:
        best: dict[Reduction, float] | None = None
        for method in range(3):
            # A model may take another path for a single row, or refuse it: then every row is there twice.
            for doubled in (False, True):
                tried = _repeated(runner, trial) if doubled else trial
                num_parts = 2 if trial.is_varied else min(MAX_PARTS, trial.sample.num_rows)
                try:
                    gradients = self._gradients(method, runner, tried, 0)
                    if gradients is None:
                        break
                    errors = measure_errors(gradients, tried.sample.num_rows, num_parts, reductions, tried.labels)
                except Exception as error:
                    _log.debug("the loss of the rows of a micro-batch failed: %s", error)
                    continue
                if not errors:
                    break
                if min(errors.values()) <= _tolerance(runner, trial.sample):
                    return errors
                if _is_random(gradients, self._gradients(method, runner, tried, 1), tried.sample.num_rows):
                    # Numbers that a loss draws show nothing. But what a method without them has shown still holds.
                    return best
                best = best or errors
                break
        return best

    def _gradients(self, method: int, runner: TorchStage, trial: _Trial, more_steps: int) -> Gradients | None:
        """Compute gradients in one of three ways. Each of them misses the reduction only where layers mix rows.

        Random numbers are those of the step, or of a later one.
        """
        sample, step = trial.sample, trial.step + more_steps
        if method == 0:
            if self._is_own:
                return None
            output, _ = run_whole(runner, self._loss, sample, step, trial.base)
            return output_gradients(runner, self._loss, sample, output)
        return stage_gradients(
            runner,
            self._model,
            self._loss,
            sample,
            step,
            trial.base,
            is_batch=trial.is_batch,
            is_training=method == 2,
        )


def _repeated(runner: TorchStage, trial: _Trial) -> _Trial:
    """The same rows, each of them twice."""
    sample = trial.sample
    num_rows = sample.num_rows
    if has_row_lists(sample.inputs):
        inputs = pack(double_batch(unpack(sample.inputs, sample.inputs.tensors), num_rows))[0]
    else:
        pairs = zip(sample.inputs.tensors, row_dims(runner, sample, is_batch=trial.is_batch), strict=True)
        inputs = sample.inputs.with_tensors(
            [double_rows(tensor, num_rows, dim) if each else tensor for tensor, (dim, each) in pairs]
        )
    targets = map_batch(
        sample.targets,
        lambda item: double_rows(item, num_rows, 0) if item.dim() and len(item) % num_rows == 0 else item,
        lambda items: [item for item in items for _ in range(2)],
    )
    return replace(
        trial,
        sample=LossSample(inputs, targets, 2 * num_rows, double_batch(sample.batch, num_rows)),
        labels={name: double_rows(item, num_rows, 0) for name, item in trial.labels.items()},
    )


def _is_random(gradients: Gradients | None, others: Gradients | None, num_rows: int) -> bool:
    """Whether other random numbers give other gradients."""
    if gradients is None or others is None:
        return False
    whole = Rows(0, num_rows)
    one = gradients(whole).elements
    with fork_rng(torch.device("cpu"), 1):
        other = others(whole).elements
    return not torch.equal(one, other)


def _tolerance(runner: TorchStage, sample: LossSample) -> float:
    tensors = [*sample.inputs.tensors, *runner.parameters.values()]
    is_low = any(tensor.is_floating_point() and tensor.dtype.itemsize < 4 for tensor in tensors)
    device = tensors[0].device.type if tensors else "cpu"
    return LOW_PRECISION_TOLERANCE if is_low or torch.is_autocast_enabled(device) else TOLERANCE


def _refusal(
    num_rows: int, errors: Mapping[Reduction, float], fitting: Sequence[Reduction], *, is_own: bool
) -> InputError:
    pair = "(sum, count): the sum over what the loss averages, such as labels that are not ignored, and their number"
    hint = (
        f"Pass a loss function of the model's output that returns {pair}."
        if is_own
        else f"Return {pair}, instead of a mean."
    )
    if not errors or fitting:
        return InputError(
            "labels of the batch are ignored, and it cannot be found out whether the loss is a mean over rows or over "
            "the labels that count, so micro-batches cannot be weighted",
            hint=hint,
        )
    error = min(errors.values())
    difference = f"differ by {show_percent(error)}" if error < math.inf else "differ"
    if SUMS in errors:
        return InputError(
            "the sum and the count of a micro-batch are not the sums of those of its parts: the gradients or counts of "
            f"{num_rows} rows {difference}",
            hint="Return (sum, count), where both are sums over rows.",
        )
    names = "the mean over its rows" if len(errors) == 1 else "a mean over its rows, or over the labels that count"
    return InputError(
        f"the loss of a micro-batch is not {names}: the gradients of {num_rows} rows, and the mean of those of their "
        f"parts, {difference}. Micro-batches would get wrong weights",
        hint=hint,
    )
