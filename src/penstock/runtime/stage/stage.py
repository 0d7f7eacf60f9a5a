"""A stage's jobs on torch: forward, forward again, input gradient, weight gradient.

The forward is ordinary eager autograd. What comes in enters the graph as the result of a function of its own, not as a
leaf, so that blocks may change it in place; that function also catches the gradients that leave. Of the output only
its place in the graph is kept, not its memory.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, _engine_run_backward, get_gradient_edge, saved_tensors_hooks

from penstock.model import Block, Carry
from penstock.runtime.health import check_batch, check_loss, check_output, where
from penstock.runtime.stage.instrumentation import NOTHING, Looking
from penstock.runtime.stage.replica_sync import Meeting
from penstock.runtime.stage.wgrad_queue import WeightJobs
from penstock.runtime.tensors import Packed, Rows, pack, unpack

Finish = Callable[[Carry], Carry]

_ANCHOR = torch.empty(0, requires_grad=True)
"""What makes autograd follow the tensors that enter a stage. It never gets a gradient."""
Replayed = Callable[[Sequence[Tensor | None]], tuple[list[Tensor | None], WeightJobs | None]]


@dataclass(eq=False)
class Graph:
    """What a forward leaves for its backward."""

    outputs: list[GradientEdge]
    """One for each tensor of the output that a gradient can come to."""
    jobs: WeightJobs | None
    """Where weight gradients are put off to, if they are."""
    entered: list[bool]
    """Which of the tensors that came in need a gradient."""
    ones: list[Tensor]
    """For a graph that ends in the loss: the gradient to begin with."""
    caught: list[Tensor | None] = field(default_factory=list)
    retained: bool = False
    """Whether it will be gone back through again."""
    replay: Replayed | None = None
    """For a forward that ran elsewhere: goes back through a graph like its own."""

    def let_go(self) -> None:
        """Nobody will go back through it: it and what would catch its gradients hold each other, unseen by Python."""
        self.outputs = []


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensors: list[Tensor], graph: Graph) -> Any:  # noqa: ARG004
        ctx.graph = graph
        ctx.set_materialize_grads(False)
        return tuple(tensor.detach() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        ctx.graph.caught = list(grads)
        return None, None, None


class TorchStage:
    """The blocks of one stage on this device."""

    def __init__(
        self,
        blocks: Sequence[Block],
        first_unit: int,
        model: nn.Module,
        *,
        seed: int,
        is_split: bool,
        device: torch.device,
        check_finite: bool = False,
        meeting: Meeting | None = None,
    ) -> None:
        self.meeting = meeting
        """With the ranks that have other rows of the same micro-batches."""
        self.blocks = tuple(blocks)
        self._check_finite = check_finite
        self._first_unit = first_unit
        self._device = device
        named = {name: parameter for block in blocks for name, parameter in block.parameters.items()}
        self.parameters = named
        self.trained = {name: parameter for name, parameter in named.items() if parameter.requires_grad}
        self._not_put_off: list[Tensor] = list(self.trained.values())
        """What the backward must set aside, as far as is known from the last one."""
        self._looking = Looking(
            model, self.trained.values(), seed=seed, is_split=is_split, device=device, meeting=meeting
        )
        held = {id(buffer) for block in blocks for buffer in block.buffers.values()}
        self._buffers = [
            (module, name)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and id(buffer) in held
        ]

    def begin(self) -> None:
        """Before an iteration: modules that are to train or not to train from now on are seen."""
        self._looking.begin()

    def reseed(self, seed: int) -> None:
        """Draw random numbers from the streams of another seed from now on."""
        self._looking.seed = seed

    def recalling(self, notes: Sequence[Tensor]) -> AbstractContextManager[None]:
        """Around a forward that runs again; without notes everything is added up over the rows here alone."""
        if self.meeting is None:
            return nullcontext()
        return self.meeting.recalling(notes) if notes else self.meeting.apart()

    def buffers(self) -> list[Tensor]:
        """The buffers as they are now."""
        found = (module._buffers[name] for module, name in self._buffers)
        return [buffer for buffer in found if buffer is not None]

    def buffer_versions(self) -> list[tuple[int, int]]:
        """Something that differs when a buffer has changed."""
        return [(id(buffer), buffer._version) for buffer in self.buffers()]

    def run(
        self,
        given: Packed,
        step: int,
        rows: Rows,
        finish: Finish | None,
        *,
        keep: bool,
        defer: bool,
        hooks: saved_tensors_hooks | None = None,
    ) -> tuple[Packed, Graph]:
        """The forward. With `keep` the graph can be gone back through, with `defer` in two steps.

        Without `keep` the same kernels run, as they may differ where no gradient is wanted, but nothing is saved.
        `hooks` get what is saved.
        """
        graph = Graph([], WeightJobs() if defer else None, list(given.needs_grad), [])
        saving = hooks or (NOTHING if keep else saved_tensors_hooks(lambda _: None, _no_backward))
        with torch.enable_grad(), saving:
            carry = self._call(unpack(given, _enter(given, graph)), graph.jobs, step, rows, finish)
        packed, tensors = pack(carry)
        if finish is not None:
            graph.ones = [torch.ones_like(tensor) for tensor in tensors if tensor.requires_grad]
        if keep:
            graph.outputs = [get_gradient_edge(tensor) for tensor in tensors if tensor.requires_grad]
        return packed, graph

    def evaluate(self, given: Packed, step: int, rows: Rows, finish: Finish | None) -> Packed:
        """The forward alone, without gradients."""
        with torch.no_grad():
            return pack(self._call(unpack(given, list(given.tensors)), None, step, rows, finish))[0]

    def _call(self, carry: Carry, jobs: WeightJobs | None, step: int, rows: Rows, finish: Finish | None) -> Carry:
        """The blocks, and what makes the loss."""
        with self._looking.at_forward(jobs, step, rows) as enter:
            return self._call_blocks(carry, enter, step, rows, finish)

    def _call_blocks(
        self, carry: Carry, enter: Callable[[int], None] | None, step: int, rows: Rows, finish: Finish | None
    ) -> Carry:
        """`enter` is told before which unit comes next."""
        if self._check_finite and self._first_unit == 0:
            check_batch(carry, step, rows)
        unit = self._first_unit
        for unit, block in enumerate(self.blocks, start=self._first_unit):
            if enter is not None:
                enter(unit)
            try:
                carry = block.call(carry)
            except Exception as error:
                error.add_note(f"In the forward of unit {unit} ({block.name}), {where(step, rows)}.")
                raise
            if self._check_finite:
                check_output(carry, unit, block, step, rows)
        if finish is not None:
            if enter is not None:
                enter(unit + 1)
            try:
                carry = finish(carry)
            except Exception as error:
                error.add_note(f"In the loss, {where(step, rows)}.")
                raise
            if self._check_finite:
                check_loss(carry, unit, step, rows)
        return carry

    def run_again(
        self,
        given: Packed,
        step: int,
        rows: Rows,
        finish: Finish | None,
        *,
        defer: bool,
        hooks: saved_tensors_hooks | None = None,
        notes: Sequence[Tensor] = (),
    ) -> Graph:
        """The forward once more, for the backward; buffers keep what the first run made of them.

        `notes` are what the ranks that share the stage added up then.
        """
        with self.buffers_kept(), self.recalling(notes):
            return self.run(given, step, rows, finish, keep=True, defer=defer, hooks=hooks)[1]

    def backward(self, graph: Graph, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of what came in, one for each tensor that needs one. Weight gradients too, unless put off."""
        if graph.replay is not None:
            found, graph.jobs = graph.replay(grads)
            graph.replay = None
            return found
        outputs = graph.outputs
        if not graph.retained:
            graph.outputs = []
        pairs = [(edge, grad) for edge, grad in zip(outputs, grads, strict=True) if grad is not None]
        if pairs:
            edges, given = tuple(edge for edge, _ in pairs), tuple(grad for _, grad in pairs)
            aside = NOTHING if graph.jobs is None else graph.jobs.set_aside(self._not_put_off)
            with self._without_autocast(), aside, self._looking.at_backward(graph.jobs):
                # What torch.autograd.backward does, less its checks, which take longer than small blocks do.
                _engine_run_backward(
                    edges, given, graph.retained, False, (), allow_unreachable=True, accumulate_grad=True
                )
            if graph.jobs is not None:
                # Often these are few, and to look at all would take time. One that is missed is still added, at once.
                self._not_put_off = graph.jobs.not_put_off
        # The graph and what caught its gradients hold each other: they must let go.
        caught, graph.caught = graph.caught, []
        return caught or [None] * sum(graph.entered)

    def weights(self, graph: Graph) -> None:
        """The weight gradients that the backward put off."""
        if graph.jobs is not None:
            with self._without_autocast():
                graph.jobs.run()

    def _without_autocast(self) -> AbstractContextManager[None]:
        """As torch advises, the types of the backward follow from those of the forward alone."""
        kind = self._device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else NOTHING

    @contextmanager
    def buffers_kept(self) -> Iterator[None]:
        """Buffers are afterwards as they were before."""
        # They are exchanged, not written back: graphs in flight may still hold them.
        before = [(module, name, module._buffers[name]) for module, name in self._buffers]
        for module, name, buffer in before:
            module._buffers[name] = None if buffer is None else buffer.clone()
        try:
            yield
        finally:
            for module, name, buffer in before:
                module._buffers[name] = buffer


def _no_backward(_: object) -> Tensor:
    raise AssertionError("this forward was run without keeping anything for a backward")


def _enter(given: Packed, graph: Graph) -> list[Tensor]:
    """The tensors that came in, as part of the graph where they need gradients."""
    moving = [tensor for tensor, need in zip(given.tensors, given.needs_grad, strict=True) if need]
    if not moving:
        return list(given.tensors)
    inside = iter(_Enter.apply(_ANCHOR, moving, graph))  # type: ignore[no-untyped-call]
    return [next(inside) if need else tensor for tensor, need in zip(given.tensors, given.needs_grad, strict=True)]
