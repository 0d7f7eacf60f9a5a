"""When one rank tries the loss, and on which of its rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from penstock.errors import InputError
from penstock.model import LossFunction, RowList, is_row_list, map_tensors
from penstock.runtime.loss.gradients import LossSample, has_row_lists, has_rows
from penstock.runtime.loss.terms import LossTerms
from penstock.runtime.loss.trial import LossTrial
from penstock.runtime.stage import TorchStage
from penstock.runtime.tensors import PackedPayload, Rows, join_rows, pack, unpack


class RankTrials:
    """Tries the loss on the first rows of an iteration that this rank's last stage processes.

    Parts can be compared with the whole of two rows only. A rank with one row of every iteration joins those of two.

    Args:
        model: The model.
        loss: The loss function.
        is_whole_model: Whether the last stage is also the first one.
    """

    def __init__(self, model: nn.Module, loss: LossFunction, *, is_whole_model: bool) -> None:
        self._trial = LossTrial(model, loss)
        self._is_batch = is_whole_model
        self._terms: LossTerms | None = None
        self._kept: list[_Kept] = []
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
            self._terms = terms
            self._is_done = not terms.is_trial and not terms.is_checked and self._is_checked and not self._kept
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
        assert terms.reduction is not None, "the first micro-batch has set it"
        device = _device(sample.inputs)
        labels = {
            name: item[rows.start : rows.stop].to(device, copy=True)
            for name, item in terms.fed.items()
            if name == terms.reduction.labels
        }
        # A row that was kept before these labels decided the reduction tells nothing about it.
        self._kept = [item for item in self._kept if rows.num == 1 and item.labels.keys() == labels.keys()]
        self._kept.append(_Kept(_copied(sample), labels, rows.start))
        if sum(item.sample.num_rows for item in self._kept) < 2:
            return
        try:
            joined = _joined([item.sample for item in self._kept])
            labels = {name: torch.cat([item.labels[name] for item in self._kept]) for name in labels}
        except (InputError, RuntimeError):
            # Inputs without rows, or rows of different lengths, cannot be joined.
            self._kept = self._kept[-1:]
            return
        base, self._kept, self._is_done = self._kept[0].base, [], True
        self._trial.check(runner, joined, labels, terms.reduction, step=step, base=base, is_batch=self._is_batch)
        self._is_checked = True


class _Kept(NamedTuple):
    """A micro-batch to compare: its labels that decide the reduction, and the number of its first row."""

    sample: LossSample
    labels: dict[str, Tensor]
    base: int


SAME = "Use the same model, loss function and version of torch on all ranks."


def _device(inputs: PackedPayload) -> torch.device:
    return inputs.tensors[0].device if inputs.tensors else torch.device("cpu")


def _copied(sample: LossSample) -> LossSample:
    return LossSample(
        sample.inputs.with_tensors([tensor.clone() for tensor in sample.inputs.tensors]),
        map_tensors(torch.clone, sample.targets),
        sample.num_rows,
        map_tensors(torch.clone, sample.batch),
    )


def _joined(samples: list[LossSample]) -> LossSample:
    if len(samples) == 1:
        return samples[0]
    num_rows = samples[0].num_rows
    if has_row_lists(samples[0].inputs):
        batches = [unpack(item.inputs, item.inputs.tensors) for item in samples]
        inputs = pack(_joined_trees(batches, lambda tensor: has_rows(tensor, num_rows)))[0]
    else:
        inputs = join_rows([item.inputs for item in samples], [item.num_rows for item in samples])
    return LossSample(
        inputs,
        _joined_trees([item.targets for item in samples], lambda tensor: tensor.dim() > 0),
        sum(item.num_rows for item in samples),
        _joined_trees([item.batch for item in samples], lambda tensor: has_rows(tensor, num_rows)),
    )


def _joined_trees(trees: Sequence[Any], is_joined: Callable[[Tensor], bool]) -> Any:
    """Join the rows of trees of tensors and of lists with an item for each row. Other leaves are those of the first."""
    leaves, tree = pytree.tree_flatten(trees[0], is_leaf=is_row_list)
    columns = zip(*(pytree.tree_leaves(item, is_leaf=is_row_list) for item in trees), strict=True)
    joined: list[Any] = []
    for leaf, column in zip(leaves, columns, strict=True):
        if is_row_list(leaf):
            joined.append(RowList(item for items in column for item in items))
        else:
            joined.append(torch.cat(column) if isinstance(leaf, Tensor) and is_joined(leaf) else leaf)
    return pytree.tree_unflatten(joined, tree)
