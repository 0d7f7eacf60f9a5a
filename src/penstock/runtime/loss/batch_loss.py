"""The reduction of the loss in the course of training, the same on every rank."""

from collections.abc import Sequence
from typing import Any

from penstock.errors import InputError
from penstock.model import LossFunction, is_own_loss
from penstock.runtime.loss.reduction import Reduction, candidates, fill_empty, masked_labels, named_tensors
from penstock.runtime.loss.terms import LossTerms
from penstock.runtime.tensors import Rows


class BatchLoss:
    """Decides from each batch, which every rank has, what the iteration must find out about the loss.

    The loss is tried in the first iteration, and again in the first one in which labels of another tensor are ignored.
    Later it is checked in iterations 2, 4, 8 and so on, since the labels that a loss ignores may be others than -100.

    Args:
        loss: The loss function.
    """

    def __init__(self, loss: LossFunction) -> None:
        self._is_own = is_own_loss(loss)
        self._reduction: Reduction | None = None
        self._names: frozenset[str] = frozenset()
        self._num_iterations = 0

    @property
    def text(self) -> str:
        """What the loss is, in words; empty before the first iteration."""
        return "" if self._reduction is None else self._reduction.text

    @property
    def may_be_sum(self) -> bool:
        """Whether the loss function may return sums and counts."""
        return self._reduction is None or self._reduction.is_sum

    def begin(self, inputs: Any, targets: Any, num_rows: int, parts: Sequence[Rows]) -> tuple[Any, Any, LossTerms]:
        """Start an iteration.

        Args:
            inputs: Inputs of the batch.
            targets: Targets of the batch.
            num_rows: The number of rows of the batch.
            parts: The rows of each replica of the last stage in each micro-batch.

        Returns:
            The inputs and targets to use, and the terms of the iteration.
        """
        self._num_iterations += 1
        known = self._reduction
        if known is not None and known.is_sum:
            return inputs, targets, LossTerms(known, [known], is_checked=self._is_power())
        labels = masked_labels((inputs, targets), num_rows)
        is_trial = known is None or not labels.keys() <= self._names
        self._names |= labels.keys()
        reductions = candidates(self._names, labels)
        terms = LossTerms(
            None if is_trial else known, reductions, labels, self._is_power(), is_trial=is_trial, parts=parts
        )
        batch: Any = (inputs, targets)
        if not is_trial or self._is_own:
            batch, terms.filled = fill_empty(batch, reductions if known is None or is_trial else [known], labels, parts)
        terms.fed = {name: item for name, item in named_tensors(batch) if name in labels}
        return *batch, terms

    def finish(self, terms: LossTerms) -> None:
        """End an iteration, whose reduction is known.

        Raises:
            InputError: Before the reduction was known, a part without labels got one that it must not have.
        """
        assert terms.reduction is not None, "every rank has received it"
        self._reduction = terms.reduction
        if terms.is_trial and not terms.reduction.is_sum:
            needed = fill_empty((), [terms.reduction], terms.labels, terms.parts)[1]
            if terms.filled != needed:
                raise InputError(
                    "a micro-batch has no label that counts, before it is known which labels the loss counts",
                    hint="Start with a batch in which every micro-batch has labels that count.",
                )

    def _is_power(self) -> bool:
        return self._num_iterations & (self._num_iterations - 1) == 0
