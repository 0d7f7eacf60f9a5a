"""The autograd graph of a stage without its tensors, created once and replayed for every micro-batch.

The graph of a forward depends on shapes alone, unless `replay_check.py` finds otherwise. Its nodes hold indices instead
of saved tensors; each micro-batch supplies the tensors.
"""

from collections.abc import Sequence
from functools import partial

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from penstock.runtime.stage import Graph, StageJob, TorchStage, WeightGradQueue
from penstock.runtime.tensors import PackedPayload


class Replay:
    """A graph whose backward runs again and again, each time with the saved tensors of another micro-batch."""

    def __init__(self, runner: TorchStage, inputs: PackedPayload, job: StageJob) -> None:
        self._runner = runner
        self._tensors: Sequence[Tensor] = ()
        self.saved_shapes: list[tuple[tuple[int, ...], object]] = []
        """Shape and type of each tensor that the forward saved."""
        hooks = saved_tensors_hooks(self._pack, self._unpack)
        self.graph = runner.recompute(inputs, job.step, job.rows, job.compute_loss, defer=job.defer, hooks=hooks)
        self.graph.retain = True

    def with_tensors(self, tensors: Sequence[Tensor]) -> Graph:
        """The graph of the micro-batch that saved these tensors."""
        return Graph([], None, self.graph.needs_grad, self.graph.loss_grads, replay=partial(self._backward, tensors))

    def _backward(
        self, tensors: Sequence[Tensor], grads: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], WeightGradQueue | None]:
        self._tensors = tensors
        try:
            input_grads = self._runner.backward(self.graph, grads)
        finally:
            self._tensors = ()
        return input_grads, None if self.graph.queue is None else self.graph.queue.take_all()

    def _pack(self, tensor: Tensor) -> int:
        self.saved_shapes.append((tuple(tensor.shape), tensor.dtype))
        return len(self.saved_shapes) - 1

    def _unpack(self, index: int) -> Tensor:
        return self._tensors[index]
