"""A stage's autograd graph without its tensors: made once, gone back through for every micro-batch.

The graph that a forward makes depends on shapes alone, except where `checking.py` finds otherwise. Its nodes here hold
numbers in the place of saved tensors; each micro-batch brings the tensors.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from penstock.runtime.stage import Graph, Job, TorchStage, WeightJobs
from penstock.runtime.tensors import Packed


class Replay:
    """A graph that is gone back through again and again."""

    def __init__(self, runner: TorchStage, given: Packed, job: Job) -> None:
        self._runner = runner
        self._tensors: Sequence[Tensor] = ()
        self.saved_forms: list[tuple[tuple[int, ...], object]] = []
        """Shape and type of each tensor that the forward saved."""
        hooks = saved_tensors_hooks(self._number, self._find)
        self.graph = runner.run_again(given, job.step, job.rows, job.finish, defer=job.defer, hooks=hooks)
        self.graph.retained = True

    def with_tensors(self, tensors: Sequence[Tensor]) -> Graph:
        """The graph of the micro-batch that saved these."""
        return Graph([], None, self.graph.entered, self.graph.ones, replay=partial(self._backward, tensors))

    def _backward(
        self, tensors: Sequence[Tensor], grads: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], WeightJobs | None]:
        self._tensors = tensors
        try:
            found = self._runner.backward(self.graph, grads)
        finally:
            self._tensors = ()
        return found, None if self.graph.jobs is None else self.graph.jobs.handed_over()

    def _number(self, tensor: Tensor) -> int:
        self.saved_forms.append((tuple(tensor.shape), tensor.dtype))
        return len(self.saved_forms) - 1

    def _find(self, number: int) -> Tensor:
        return self._tensors[number]
