"""Stages whose jobs are slept: what they hand on has the right size and no meaning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from penstock.emulation.clock import DeviceClock
from penstock.emulation.rank.scratch import Scratch
from penstock.emulation.rank.tensor_sizes import StageSizes
from penstock.runtime.remote_backward import InputOnly, Shipping
from penstock.runtime.stage import Finish, Graph, Job, TorchStage
from penstock.runtime.tensors import Packed, Rows, pack


@dataclass(frozen=True)
class JobSeconds:
    """How long the jobs of a stage take on this device, here."""

    forward_s: float = 0.0
    recompute_s: float = 0.0
    input_grad_s: float = 0.0
    weight_grad_s: float = 0.0
    backward_s: float = 0.0
    """Both in one job."""


@dataclass(eq=False)
class SleptGraph(Graph):
    """What a forward leaves for its backward: how many rows it had, and whether weight gradients come apart."""

    num_rows: int = 0
    is_split: bool = False


class SleepingStage(TorchStage):
    """A stage on this device. The executor cannot tell it from one that computes."""

    def __init__(
        self,
        clock: DeviceClock,
        seconds: JobSeconds,
        sizes: StageSizes,
        scratch: Scratch,
        *,
        is_first: bool,
        is_last: bool,
    ) -> None:
        super().__init__((), 0, nn.Module(), seed=0, is_split=False, device=torch.device("cpu"))
        self._clock = clock
        self._seconds = seconds
        self._sizes = sizes
        self._is_first = is_first
        self._is_last = is_last
        self._scratch = scratch

    def run(
        self,
        given: Packed,  # noqa: ARG002
        step: int,  # noqa: ARG002
        rows: Rows,
        finish: Finish | None,  # noqa: ARG002
        *,
        keep: bool,  # noqa: ARG002
        defer: bool,
        hooks: Any = None,  # noqa: ARG002
    ) -> tuple[Packed, Graph]:
        """The forward."""
        self._clock.work(self._seconds.forward_s)
        out = torch.zeros(()) if self._is_last else self._scratch.rows(rows.num, self._sizes.output_width)
        return pack(out)[0], self.graph(rows, defer=defer)

    def run_again(
        self,
        given: Packed,  # noqa: ARG002
        step: int,  # noqa: ARG002
        rows: Rows,
        finish: Finish | None,  # noqa: ARG002
        *,
        defer: bool,
        hooks: Any = None,  # noqa: ARG002
        notes: Sequence[Tensor] = (),  # noqa: ARG002
    ) -> Graph:
        """The forward once more."""
        self._clock.work(self._seconds.recompute_s)
        return self.graph(rows, defer=defer)

    def backward(self, graph: Graph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:  # noqa: ARG002
        """The input gradient, and the weight gradient with it unless that comes apart."""
        assert isinstance(graph, SleptGraph), "every graph here is made here"
        self._clock.work(self._seconds.input_grad_s if graph.is_split else self._seconds.backward_s)
        return [] if self._is_first else [self._scratch.rows(graph.num_rows, self._sizes.input_width)]

    def weights(self, graph: Graph) -> None:  # noqa: ARG002
        """The weight gradient."""
        self._clock.work(self._seconds.weight_grad_s)

    def graph(self, rows: Rows, *, defer: bool) -> SleptGraph:
        """For the backward of these rows."""
        ones = [torch.ones(())] if self._is_last else []
        return SleptGraph([], None, [], ones, num_rows=rows.num, is_split=defer)

    def kept(self, rows: Rows) -> Packed:
        """What goes to a backward elsewhere."""
        return pack(self._scratch.rows(rows.num, self._sizes.kept_width))[0]


class SleepingShipping(Shipping):
    """Backwards elsewhere get as much as a forward saves."""

    def reason(self, runner: TorchStage, given: Packed, job: Job) -> str:  # noqa: ARG002
        """There is never one against it."""
        return ""

    def run(self, runner: TorchStage, given: Packed, job: Job, told: str) -> tuple[Packed, Packed]:  # noqa: ARG002
        """The forward, and the message for its backward."""
        assert isinstance(runner, SleepingStage), "all stages here sleep"
        out, _ = runner.run(given, job.step, job.rows, job.finish, keep=True, defer=job.defer)
        return out, runner.kept(job.rows)

    def graph(self, runner: TorchStage, message: Packed, job: Job, from_batch: Packed | None) -> Graph:
        """What the backward needs, at once or by running the forward again."""
        assert isinstance(runner, SleepingStage), "all stages here sleep"
        if message.values and isinstance(message.values[0], InputOnly):
            return super().graph(runner, message, job, from_batch)
        return runner.graph(job.rows, defer=job.defer)
