"""When one rank tries the loss, and on which of its rows."""

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model import LossFunction
from penstock.runtime.loss.gradients import LossSample, has_rows
from penstock.runtime.loss.terms import LossTerms
from penstock.runtime.loss.trial import LossTrial
from penstock.runtime.stage import TorchStage
from penstock.runtime.tensors import PackedPayload, Rows, join_rows


class RankTrials:
    """Tries the loss on the first rows of an iteration that this rank's last stage processes.

    Args:
        model: The model.
        loss: The loss function.
        is_whole_model: Whether the last stage is also the first one.
    """

    def __init__(self, model: nn.Module, loss: LossFunction, *, is_whole_model: bool) -> None:
        self._trial = LossTrial(model, loss)
        self._is_batch = is_whole_model
        self._terms: LossTerms | None = None
        self._kept: list[tuple[LossSample, Rows]] = []
        """Micro-batches of a single row, until there are two of them to compare."""
        self._is_checked = False
        """Whether the reduction has been compared with parts of a micro-batch."""
        self._is_done = False
        """Whether this iteration needs nothing more."""

    def before_forward(
        self, runner: TorchStage, inputs: PackedPayload, targets: Any, rows: Rows, terms: LossTerms, step: int
    ) -> bool:
        """Try the loss, if that is due. Sets the reduction of the iteration.

        Returns:
            Whether all other ranks must get the reduction.

        Raises:
            InputError: The losses of parts cannot be combined.
        """
        is_first = self._terms is not terms
        if is_first:
            self._terms, self._kept = terms, []
            self._is_done = not terms.is_trial and not terms.is_checked and self._is_checked
        if self._is_done:
            return False
        batch = None if self._is_batch else runner.model_inputs(rows)
        sample = LossSample(inputs, targets, rows.num, batch)
        if is_first and terms.is_trial:
            labels = {name: item[rows.start : rows.stop].to(_device(inputs)) for name, item in terms.fed.items()}
            reduction = self._trial.find(
                runner, sample, labels, terms.candidates, step=step, base=rows.start, is_batch=self._is_batch
            )
            if terms.reduction not in (None, reduction):
                raise InputError("the loss has another reduction on this rank than on another one", hint=SAME)
            terms.reduction = reduction
            self._is_done = self._is_checked = rows.num > 1
        if not self._is_done:
            self._check(runner, sample, rows, terms, step)
        return is_first and terms.is_trial

    def _check(self, runner: TorchStage, sample: LossSample, rows: Rows, terms: LossTerms, step: int) -> None:
        """Check the known reduction, as soon as there are two rows to compare."""
        self._kept.append((_copied(sample), rows))
        num_rows = sum(item.num_rows for item, _ in self._kept)
        if num_rows < 2:
            return
        assert terms.reduction is not None, "the first micro-batch has set it"
        device = _device(sample.inputs)
        labels = {
            name: torch.cat([item[part.start : part.stop] for _, part in self._kept]).to(device)
            for name, item in terms.fed.items()
            if name == terms.reduction.labels
        }
        base = self._kept[0][1].start
        try:
            joined = _joined([item for item, _ in self._kept])
        except (InputError, RuntimeError):
            # Inputs without rows cannot be joined: a micro-batch of several rows is needed.
            joined = None
        self._kept, self._is_done = [], True
        if joined is not None:
            self._trial.check(runner, joined, labels, terms.reduction, step=step, base=base, is_batch=self._is_batch)
            self._is_checked = True


SAME = "Use the same model, loss function and version of torch on all ranks."


def _device(inputs: PackedPayload) -> torch.device:
    return inputs.tensors[0].device if inputs.tensors else torch.device("cpu")


def _copied(sample: LossSample) -> LossSample:
    return LossSample(
        sample.inputs.with_tensors([tensor.clone() for tensor in sample.inputs.tensors]),
        sample.targets,
        sample.num_rows,
        sample.batch,
    )


def _joined(samples: list[LossSample]) -> LossSample:
    if len(samples) == 1:
        return samples[0]
    inputs = join_rows([item.inputs for item in samples], [item.num_rows for item in samples])
    leaves, tree = pytree.tree_flatten(samples[0].targets)
    columns = zip(*(pytree.tree_leaves(item.targets) for item in samples), strict=True)
    targets = [
        torch.cat(column) if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf
        for leaf, column in zip(leaves, columns, strict=True)
    ]
    leaves, batch_tree = pytree.tree_flatten(samples[0].batch)
    columns = zip(*(pytree.tree_leaves(item.batch) for item in samples), strict=True)
    batch = [
        torch.cat(column) if isinstance(leaf, torch.Tensor) and has_rows(leaf, samples[0].num_rows) else leaf
        for leaf, column in zip(leaves, columns, strict=True)
    ]
    return LossSample(
        inputs,
        pytree.tree_unflatten(targets, tree),
        sum(item.num_rows for item in samples),
        pytree.tree_unflatten(batch, batch_tree),
    )
