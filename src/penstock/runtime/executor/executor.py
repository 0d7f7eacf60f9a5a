"""The executor: runs the actions of one rank in order.

Receives are posted where the program has them, and waited for where their payload is needed. Sends do not block; the
transport waits for them in another thread. Reductions are waited for at the end. Optimizer steps and the weight return
follow when the user's optimizer steps (`weight_return.py`).

While a profiler of torch is active, every action is a range named after it: `PP:3F1`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function

from penstock.device import DeviceClock, Mark, RunAhead
from penstock.dist import NO_ACTION, status_board
from penstock.model import LossFunction
from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.messages import (
    RECEIVED,
    SENT,
    BackwardInputs,
    Message,
    Routing,
    gather_forward,
    gather_gradients,
    receive,
    send,
)
from penstock.runtime.executor.protocols import (
    Clock,
    GradReducer,
    PendingReduction,
    RecomputeCheck,
    Span,
    StageRunner,
    Transfer,
    WeightReturner,
)
from penstock.runtime.executor.replica_sync_points import ReplicaSyncPoints
from penstock.runtime.health import RankStatus
from penstock.runtime.loss import RankTrials, make_compute_loss
from penstock.runtime.remote_backward import PLANNED, make_recompute_message
from penstock.runtime.stage import ComputeLoss, sum_losses
from penstock.runtime.tensors import PackedPayload, Rows, pack, slice_rows
from penstock.runtime.transport import PendingReceive, Transport

RunAction = Callable[[Iteration, Action], None]
Job = tuple[RunAction | None, Action]
"""An action and the function that runs it; None for actions of the optimizer step."""


CPU = torch.device("cpu")
RUN_AHEAD_MICROBATCHES = 2
"""How many micro-batches of work the host may queue on its device."""


@dataclass(frozen=True)
class ExecutorParts:
    """The parts of an executor."""

    routing: Routing
    actions: Sequence[Action]
    """The actions of this rank, in order."""
    runners: Mapping[int, StageRunner]
    """By stage: those whose forward or backward is on this rank."""
    loss: LossFunction
    transport: Transport
    reducer: GradReducer
    weights: WeightReturner
    transfer: Transfer
    check_recompute: RecomputeCheck
    split: Collection[tuple[int, int, int]]
    """Split backwards of all ranks: rank, stage, micro-batch."""
    trials: RankTrials | None = None
    """Tries the loss in the first iteration."""
    device: torch.device = CPU
    clock: Clock | None = None
    """The time of an emulated device. Without it, actions take the time that they take."""


class Executor:
    """Runs the actions of one rank."""

    def __init__(self, parts: ExecutorParts) -> None:
        self._routing = routing = parts.routing
        self._layout = layout = routing.layout
        self._rank = routing.rank
        self._runners = parts.runners
        self._loss = parts.loss
        self._trials = parts.trials
        self._transport = parts.transport
        self._reducer = parts.reducer
        self._weights = parts.weights
        self._split = parts.split
        self._transfer = parts.transfer
        self._syncs = ReplicaSyncPoints(routing, parts.transport, parts.runners)
        self._backward_inputs = BackwardInputs(
            routing, parts.runners, parts.transfer, parts.check_recompute, parts.split
        )
        self._last = len(layout.stages) - 1
        functions: dict[Kind, RunAction] = {
            Kind.F: self._forward,
            Kind.R: self._prepare_backward,
            Kind.I: self._backward,
            Kind.B: self._backward,
            Kind.W: self._backward_weight,
            **dict.fromkeys(SENT, self._send),
            **dict.fromkeys(RECEIVED, self._receive),
            Kind.REDUCE_GRAD: self._reduce,
            Kind.REDUCE_TIE: self._reduce,
        }
        self._jobs: list[Job] = [(functions.get(action.kind), action) for action in parts.actions]
        if parts.clock is not None:
            self._jobs = [
                (partial(self._run_on_clock, parts.clock, run) if run and action.kind.is_compute else run, action)
                for run, action in self._jobs
            ]
        self._reductions: dict[Action, PendingReduction] = {}
        self._arrivals: dict[Action, PendingReceive] = {}
        self._clock_spans_s: dict[Action, Span] = {}
        self._clock = DeviceClock(parts.device)
        self._is_timed_by_host = self._clock.is_host
        self._spans: list[tuple[Mark, Mark]] = []
        self._began_s = perf_counter()
        """When the host began the current action."""
        self._began: Mark = self._began_s
        """Start of the current action. An action that had to wait for its inputs starts when these have arrived."""
        self._current: Action | None = None
        self._positions = status_board().positions(parts.actions)
        computed = [action for action in parts.actions if action.kind.is_compute]
        each = len(computed) / max(1, layout.num_microbatches)
        self._run_ahead = RunAhead(parts.device, round(RUN_AHEAD_MICROBATCHES * each))

    def run(self, iteration: Iteration, on_loss: Callable[[Tensor], None]) -> None:
        """Run an iteration up to the optimizer step.

        Args:
            iteration: The iteration.
            on_loss: Called with this rank's part of the loss, if it has rows of the last stage.
        """
        self._reducer.begin()
        self._spans = []
        self._arrivals.clear()
        self._reductions.clear()
        for runner in self._runners.values():
            runner.begin(iteration.inputs)
        expected = self._count_losses(iteration)
        board = status_board()
        jobs = _in_ranges(self._jobs) if torch._C._autograd._profiler_enabled() else self._jobs
        for position, (run, action) in zip(self._positions, jobs, strict=True):
            if run is None:
                self._spans.append((0.0, 0.0))
                continue
            self._begin()
            self._current = action
            board.begin_action(position)
            run(iteration, action)
            self._spans.append((self._began, perf_counter() if self._is_timed_by_host else self._clock.mark()))
            if action.kind.is_compute:
                self._run_ahead.note()
            if expected and len(iteration.losses) == expected:
                expected = 0
                on_loss(sum_losses([iteration.losses[number] for number in sorted(iteration.losses)]))
        for reduction in self._reductions.values():
            reduction.finish()
        self._transport.flush()
        self._current = None
        board.begin_action(NO_ACTION)

    def status(self, step: int) -> RankStatus:
        """Return what this rank does at the moment. Called from another thread."""
        action, waiting_for, for_s = self._current, self._transport.waiting_for, perf_counter() - self._began_s
        if waiting_for is not None:
            return RankStatus(step, f"waiting: {waiting_for().split(', ', 2)[-1]}", for_s, is_busy=True)
        if action is None:
            return RankStatus(step, "between steps", for_s, is_busy=False)
        return RankStatus(step, f"running {action}", for_s, is_busy=True)

    def _begin(self) -> None:
        """Start the time of an action, or start it again when its inputs have arrived."""
        self._began_s = perf_counter()
        self._began = self._began_s if self._is_timed_by_host else self._clock.mark()

    def mechanisms(self) -> dict[int, str]:
        """Return how the remote backwards that have run get their tensors, by stage."""
        return dict(self._transfer.mechanisms)

    def spans_s(self) -> list[Span]:
        """Return start and end of each action of the last iteration; zeros for those of the optimizer step.

        The times are those of the device, on the clock of the host. An accelerator is waited for.

        A receive starts when it is posted and ends when its payload is found complete; a reduction likewise. With a
        clock, compute actions have the spans of the emulated device.
        """
        marks: list[Mark] = []
        for (start, end), (_, action) in zip(self._spans, self._jobs, strict=True):
            if action in self._arrivals:
                marks += (start, self._arrivals[action].arrived_at)
            elif action in self._reductions:
                marks += (start, self._reductions[action].ended_s)
            else:
                marks += self._clock_spans_s.get(action, (start, end))
        times = iter(self._clock.seconds(marks))
        return list(zip(times, times, strict=True))

    def with_gathers(self, spans_s: Sequence[Span], gathered_s: Span) -> list[Span]:
        """Return the spans of all actions, with that of the all-gathers of parameters."""
        gathers = (action.kind == Kind.GATHER_P for _, action in self._jobs)
        return [gathered_s if is_gather else span for span, is_gather in zip(spans_s, gathers, strict=True)]

    def mark(self) -> Mark:
        """Return a mark at the present end of the device's work."""
        return self._clock.mark()

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        """Convert marks to seconds of the host's clock."""
        return self._clock.seconds(marks)

    def _run_on_clock(self, clock: Clock, run: RunAction, iteration: Iteration, action: Action) -> None:
        run(iteration, action)
        span_s = clock.take_span(self._began_s)
        if span_s is not None:
            self._clock_spans_s[action] = span_s

    def _count_losses(self, iteration: Iteration) -> int:
        """Return the number of micro-batches whose loss this rank computes."""
        replica = self._layout.stages[self._last].replica(self._rank, backward=False)
        return 0 if replica < 0 else sum(rows[replica].num > 0 for rows in iteration.rows[self._last])

    def _try_loss(self, iteration: Iteration, stage: int, rows: Rows, inputs: PackedPayload) -> None:
        """Before a forward of the last stage: find or check the reduction of the loss, if that is due."""
        if stage == self._last and self._trials is not None:
            targets = slice_rows(iteration.targets, rows, iteration.device)
            runner: Any = self._runners[stage]
            if self._trials.before_forward(runner, inputs, targets, rows, iteration.terms, iteration.step):
                iteration.announce_reduction()

    def _make_loss(
        self, iteration: Iteration, stage: int, rows: Rows, microbatch: int | None = None
    ) -> ComputeLoss | None:
        """Return the loss of some rows of the last stage. With a micro-batch, the count of its sum is kept."""
        if stage != self._last:
            return None
        terms = iteration.terms

        def keep(count: Tensor | float) -> None:
            if microbatch is not None:
                terms.counts[microbatch] = count

        targets = slice_rows(iteration.loss_targets, rows, iteration.device)
        return make_compute_loss(self._loss, targets, terms, rows, iteration.num_rows, keep)

    def _forward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._routing.own_rows(iteration, stage, microbatch, backward=False)
        if not rows.num:
            self._syncs.receive_buffers(iteration, action)
            return
        self._weights.finish(stage)
        view, runner = self._layout.stages[stage], self._runners[stage]
        inputs = gather_forward(self._routing, iteration, stage, microbatch, rows)
        self._begin()
        self._try_loss(iteration, stage, rows, inputs)
        compute_loss = self._make_loss(iteration, stage, rows, microbatch)
        with self._syncs.around(iteration, action, backward=False):
            if view.recompute:
                out = self._backward_inputs.run_recomputed(iteration, action, inputs, rows, compute_loss, PLANNED)
            elif view.is_local(self._rank):
                defer = (self._rank, stage, microbatch) in self._split
                out, graph = runner.run(inputs, iteration.step, rows, compute_loss, keep=True, defer=defer)
                iteration.graphs[stage, microbatch] = graph
            else:
                out = self._backward_inputs.run_remote(iteration, action, inputs, rows, compute_loss)
        self._syncs.send_buffers(iteration, action)
        self._store_output(iteration, action, out, rows)

    def _store_output(self, iteration: Iteration, action: Action, out: PackedPayload, rows: Rows) -> None:
        """Keep the output of a forward for the next stage; that of the last stage is the loss."""
        stage, microbatch = action.stage, action.microbatch
        if stage == self._last:
            iteration.losses[microbatch] = out.tensors[0]
        else:
            if iteration.on_output is not None:
                iteration.on_output(stage, out, rows)
            iteration.put((Message.ACTIVATIONS, stage, microbatch), out, rows, iteration.rows[stage + 1][microbatch])

    def _prepare_backward(self, iteration: Iteration, action: Action) -> None:
        """Recompute the forward, or rebuild its graph from the message of the forward's rank."""
        stage, microbatch = action.stage, action.microbatch
        rows = self._routing.own_rows(iteration, stage, microbatch, backward=True)
        if not rows.num:
            return
        view = self._layout.stages[stage]
        source = view.forward[view.replica(self._rank, backward=True)]
        if source == self._rank:
            message = iteration.saved_inputs.pop((stage, microbatch))
        elif self._routing.sends_saved(stage):
            message = iteration.pending.pop((Message.SAVED_TENSORS, stage, microbatch, source)).wait()
            self._begin()
        else:
            message = make_recompute_message(None, PLANNED)
        if stage == self._last:
            iteration.receive_reduction(source)
        compute_loss = self._make_loss(iteration, stage, rows)
        job = self._backward_inputs.make_job(iteration, action, rows, compute_loss, self._rank)
        is_from_batch = stage == 0 and source != self._rank
        from_batch = gather_forward(self._routing, iteration, 0, microbatch, rows) if is_from_batch else None
        graph = self._transfer.graph(self._runners[stage], message, job, from_batch)
        iteration.graphs[stage, microbatch] = graph

    def _backward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._routing.own_rows(iteration, stage, microbatch, backward=True)
        if not rows.num:
            return
        grads: Sequence[Tensor | None] | None = None
        if stage != self._last:
            grads = gather_gradients(self._routing, iteration, stage, microbatch, rows)
            self._begin()
        if (stage, microbatch) not in iteration.graphs:
            self._prepare_backward(iteration, action)
        graph = iteration.graphs.pop((stage, microbatch))
        if action.kind == Kind.I:
            iteration.graphs[stage, microbatch] = graph
        if grads is None:
            scale = iteration.loss_scale
            grads = graph.loss_grads if scale == 1.0 else [grad * scale for grad in graph.loss_grads]
        with self._syncs.around(iteration, action, backward=True):
            input_grads = self._runners[stage].backward(graph, grads)
        if stage > 0:
            packed = pack(input_grads)[0]
            users = iteration.rows[stage - 1][microbatch]
            iteration.put((Message.GRADIENTS, stage, microbatch), packed, rows, users)

    def _backward_weight(self, iteration: Iteration, action: Action) -> None:
        graph = iteration.graphs.pop((action.stage, action.microbatch), None)
        if graph is not None:
            self._runners[action.stage].backward_weight(graph)

    def _send(self, iteration: Iteration, action: Action) -> None:
        send(self._routing, self._transport, iteration, action)

    def _receive(self, iteration: Iteration, action: Action) -> None:
        pending = receive(self._routing, self._transport, iteration, action)
        if pending is not None:
            self._arrivals[action] = pending

    def _reduce(self, iteration: Iteration, action: Action) -> None:
        describe = partial(self._routing.describe, action, iteration.step)
        is_tie = action.kind == Kind.REDUCE_TIE
        self._reductions[action] = self._reducer.start(is_tie=is_tie, number=action.stage, describe=describe)


def _in_ranges(jobs: Sequence[Job]) -> list[Job]:
    """Wrap every action in a range of the profiler."""
    return [(partial(_run_in_range, run) if run else None, action) for run, action in jobs]


def _run_in_range(run: RunAction, iteration: Iteration, action: Action) -> None:
    with record_function(f"PP:{action}"):
        run(iteration, action)
