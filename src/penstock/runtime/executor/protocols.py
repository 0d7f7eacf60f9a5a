"""The interfaces of the executor's parts. Training, emulation and tests each implement them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch import Tensor

from penstock.dist import Describe
from penstock.runtime.stage import ComputeLoss, ReplicaSync, StageJob
from penstock.runtime.tensors import PackedPayload, Rows

Span = tuple[float, float]
"""Start and end, in seconds of `time.perf_counter`."""

RecomputeCheck = Callable[[Any, PackedPayload, StageJob, PackedPayload, Sequence[Tensor], str], None]
"""Raises an error if a forward that changes buffers cannot be recomputed: runner, inputs, job, output, sums of replica
syncs, description."""


class StageGraph(Protocol):
    """What a forward leaves for its backward."""

    @property
    def loss_grads(self) -> list[Tensor]:
        """For a graph that ends in the loss: the initial gradients."""


class StageRunner(Protocol):
    """Forward and backward of one stage on this rank. Graphs are only passed back to the runner that made them."""

    replica_sync: ReplicaSync | None
    """Communication with other replicas inside an action, if the stage has any."""

    def begin(self, inputs: Any) -> None:
        """Start an iteration with these inputs of the whole batch."""

    def run(
        self,
        inputs: PackedPayload,
        step: int,
        rows: Rows,
        compute_loss: ComputeLoss | None,
        *,
        keep: bool,
        defer: bool,
    ) -> tuple[PackedPayload, Any]:
        """Run the forward. Return the output and, with `keep`, the graph; with `defer` its backward is split."""

    def evaluate(self, inputs: PackedPayload, step: int, rows: Rows, compute_loss: ComputeLoss | None) -> PackedPayload:
        """Run the forward without gradients."""

    def backward(self, graph: Any, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the gradients of the inputs. Weight gradients are computed too, unless they are deferred."""

    def backward_weight(self, graph: Any) -> None:
        """Compute the deferred weight gradients."""

    def buffers(self) -> list[Tensor]:
        """Return the current buffers."""

    def buffer_versions(self) -> list[tuple[int, int]]:
        """Return a value that changes whenever a buffer changes."""


class Transfer(Protocol):
    """Remote backwards: decides between saved-tensor transfer and recompute, and makes the messages for either."""

    mechanisms: dict[int, str]
    """By stage: how its backward gets its tensors."""

    def reason(self, runner: Any, inputs: PackedPayload, job: StageJob) -> str:
        """Return why a forward must be recomputed for its backward; empty if its saved tensors can be sent."""

    def run(
        self, runner: Any, inputs: PackedPayload, job: StageJob, description: str
    ) -> tuple[PackedPayload, PackedPayload]:
        """Run a forward. Return its output, and the message for the rank of its backward."""

    def graph(self, runner: Any, message: PackedPayload, job: StageJob, from_batch: PackedPayload | None) -> StageGraph:
        """Return the graph for a backward; `from_batch` is the input, if the message does not contain it."""


class PendingReduction(Protocol):
    """A gradient reduction in progress."""

    ended_s: float
    """When `finish` found it complete."""

    def finish(self) -> None:
        """Block until it has completed, and store its result."""


class GradReducer(Protocol):
    """Sums gradients over ranks."""

    def begin(self) -> None:
        """Start an iteration."""

    def start(self, *, is_tie: bool, number: int, describe: Describe) -> PendingReduction:
        """Start the reduction of a stage's gradients, or of tied parameters."""


class WeightReturner(Protocol):
    """Returns updated weights to the rank of the forward."""

    def finish(self, stage: int) -> None:
        """Block until the weights of a stage are up to date. Called before each of its forwards."""


class Clock(Protocol):
    """The time of an emulated device."""

    def take_span(self, ready_s: float) -> Span | None:
        """Return when the device ran the action that has just ended; None if it took no time of the device.

        Args:
            ready_s: When all inputs of the action were available.
        """
