"""A rank's part of a program, done in order.

Receives are posted where they stand and waited for where they are needed; sends are set going and forgotten (the mail
watches them); reductions are waited for at the end. Optimizer steps and the return of parameters come afterwards, when
the user's optimizer steps (`returning.py`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from penstock.errors import RunError
from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.grad_reduce import Reduction
from penstock.runtime.executor.p2p import RECEIVED, SENT, receive, send
from penstock.runtime.executor.replica_sync_points import Meetings
from penstock.runtime.executor.routing import Addresses
from penstock.runtime.executor.stage_inputs import gather_forward, gather_gradients
from penstock.runtime.health import Doing
from penstock.runtime.remote_backward import PLANNED, Shipping, input_message, require_the_same_again
from penstock.runtime.stage import Finish, Job, Loss, TorchStage, add_up, scaled
from penstock.runtime.tensors import Packed, Rows, pack, share_memory, some_rows
from penstock.runtime.transport import Mail, Pending


class Executor:
    """Does the actions of one rank."""

    def __init__(
        self,
        addresses: Addresses,
        actions: Sequence[Action],
        runners: Mapping[int, TorchStage],
        loss: Loss,
        mail: Mail,
        groups: Mapping[tuple[bool, int], tuple[Any, Sequence[nn.Parameter]]],
        before_forward: Callable[[int], None],
        split: Collection[tuple[int, int, int]],
    ) -> None:
        self._layout = layout = addresses.layout
        self._rank = addresses.rank
        self._runners = runners
        self._loss = loss
        self._mail = mail
        self._groups = groups
        self._before_forward = before_forward
        self._addresses = addresses
        self._split = split
        self._shipping = Shipping()
        self._meetings = Meetings(addresses, mail, runners)
        self._alters: dict[int, bool] = {}
        self._last = len(layout.stages) - 1
        do = {
            Kind.F: self._forward,
            Kind.R: self._prepare,
            Kind.I: self._backward,
            Kind.B: self._backward,
            Kind.W: self._weights,
            **dict.fromkeys(SENT, self._send),
            **dict.fromkeys(RECEIVED, self._receive),
            Kind.REDUCE_GRAD: self._reduce,
            Kind.REDUCE_TIE: self._reduce,
        }
        self._jobs = [(do.get(action.kind), action) for action in actions]
        self._reductions: dict[Action, Reduction] = {}
        self._arrivals: dict[Action, Pending] = {}
        self._spans_s: list[tuple[float, float]] = []
        self._began_s = perf_counter()
        """When the action at hand began; set anew when it has waited for what it needs."""
        self._at: Action | None = None

    def run(self, iteration: Iteration, loss_made: Callable[[Tensor], None]) -> None:
        """All of an iteration up to the optimizer's step. `loss_made` is called with this rank's part of the loss."""
        before = self._set_aside()
        self._spans_s = []
        self._arrivals.clear()
        self._reductions.clear()
        for runner in self._runners.values():
            runner.begin()
        expected = self._num_losses(iteration)
        for do, action in self._jobs:
            if do is None:
                self._spans_s.append((0.0, 0.0))
                continue
            self._began_s = perf_counter()
            self._at = action
            do(iteration, action)
            self._spans_s.append((self._began_s, perf_counter()))
            if expected and len(iteration.losses) == expected:
                expected = 0
                loss_made(add_up([iteration.losses[number] for number in sorted(iteration.losses)]))
        for reduction in self._reductions.values():
            reduction.finish(self._mail, before)
        self._mail.sends.hand_over()
        self._mail.sends.check()
        self._at = None

    def doing(self, step: int) -> Doing:
        """What goes on at this moment, asked from another thread."""
        action, waiting, for_s = self._at, self._mail.waiting, perf_counter() - self._began_s
        if waiting is not None:
            return Doing(step, f"waiting: {waiting().split(', ', 2)[-1]}", for_s, is_busy=True)
        if action is None:
            return Doing(step, "between steps", for_s, is_busy=False)
        return Doing(step, f"doing {action}", for_s, is_busy=True)

    def mechanisms(self) -> dict[int, str]:
        """How the backwards of moved stages get what they need, for those that have run."""
        return dict(self._shipping.found)

    def spans_s(self) -> list[tuple[float, float]]:
        """When each action of the last iteration began and ended; zeros for those that come with the optimizer.

        A receive begins when it is posted and ends when it is found to be there; a reduction likewise.
        """
        found = []
        for (start, end), (_, action) in zip(self._spans_s, self._jobs, strict=True):
            last = end
            if action in self._arrivals:
                last = self._arrivals[action].arrived_s
            elif action in self._reductions:
                last = self._reductions[action].ended_s
            found.append((start, last))
        return found

    def _set_aside(self) -> dict[nn.Parameter, Tensor]:
        """What earlier iterations left is summed over ranks already: it must not be summed again."""
        found = {}
        for _, parameters in self._groups.values():
            for parameter in parameters:
                if parameter.grad is not None:
                    found[parameter] = parameter.grad
                    parameter.grad = None
        return found

    def _num_losses(self, iteration: Iteration) -> int:
        replica = self._layout.stages[self._last].replica(self._rank, backward=False)
        return 0 if replica < 0 else sum(rows[replica].num > 0 for rows in iteration.rows[self._last])

    def _finish(self, iteration: Iteration, stage: int, rows: Rows) -> Finish | None:
        if stage != self._last:
            return None
        return scaled(self._loss, some_rows(iteration.targets, rows, iteration.device), rows.num / iteration.num_rows)

    def _forward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._addresses.mine(iteration, stage, microbatch, backward=False)
        if not rows.num:
            self._meetings.follow(iteration, action)
            return
        self._before_forward(stage)
        view, runner = self._layout.stages[stage], self._runners[stage]
        given = gather_forward(self._addresses, iteration, stage, microbatch, rows)
        self._began_s = perf_counter()
        finish = self._finish(iteration, stage, rows)
        with self._meetings.taking(iteration, action, backward=False):
            if view.recompute:
                out = self._run_and_keep_input(iteration, action, given, rows, finish, PLANNED)
            elif view.is_at_home(self._rank):
                defer = (self._rank, stage, microbatch) in self._split
                out, graph = runner.run(given, iteration.step, rows, finish, keep=True, defer=defer)
                iteration.graphs[stage, microbatch] = graph
            else:
                out = self._run_for_elsewhere(iteration, action, given, rows, finish)
        self._meetings.lead(iteration, action)
        self._deliver(iteration, action, out, rows)

    def _deliver(self, iteration: Iteration, action: Action, out: Packed, rows: Rows) -> None:
        """What a forward made is there for the next stage, or is the loss."""
        stage, microbatch = action.stage, action.microbatch
        if stage == self._last:
            iteration.losses[microbatch] = out.tensors[0]
        else:
            if iteration.look is not None:
                iteration.look(stage, out, rows)
            iteration.put((Kind.F, stage, microbatch), out, rows, iteration.rows[stage + 1][microbatch])

    def _run_for_elsewhere(
        self, iteration: Iteration, action: Action, given: Packed, rows: Rows, finish: Finish | None
    ) -> Packed:
        """For a backward elsewhere: what is saved goes there, or the input if that does not work."""
        stage, microbatch = action.stage, action.microbatch
        view, runner = self._layout.stages[stage], self._runners[stage]
        target = view.backward[view.replica(self._rank, backward=False)]
        job = self._job(iteration, action, rows, finish, target)
        reason = self._shipping.reason(runner, given, job)
        if reason:
            return self._run_and_keep_input(iteration, action, given, rows, finish, reason)
        out, message = self._shipping.run(runner, given, job, self._addresses.tell(action, iteration.step))
        iteration.put((Kind.R, stage, microbatch), message, rows, [rows])
        return out

    def _job(self, iteration: Iteration, action: Action, rows: Rows, finish: Finish | None, backward: int) -> Job:
        stage, microbatch = action.stage, action.microbatch
        defer = (backward, stage, microbatch) in self._split
        return Job(stage, iteration.step, rows, finish, defer, iteration.signature, iteration.tensors)

    def _run_and_keep_input(
        self,
        iteration: Iteration,
        action: Action,
        given: Packed,
        rows: Rows,
        finish: Finish | None,
        reason: str,
    ) -> Packed:
        """For a forward that runs again, here or elsewhere, for a reason: what came in must stay as it is."""
        stage = action.stage
        used = given
        if self._alters.get(stage, True):
            used = given.with_tensors([tensor.clone() for tensor in given.tensors])
        versions, runner = [tensor._version for tensor in used.tensors], self._runners[stage]
        buffers = runner.buffer_versions() if stage not in self._alters else None
        out, _ = runner.run(used, iteration.step, rows, finish, keep=False, defer=False)
        altered = versions != [tensor._version for tensor in used.tensors]
        if altered and used is given:
            raise RunError(
                f"{self._addresses.tell(action, iteration.step)}: the stage changed its input in place, "
                "which it did not before",
                hint="Do not change a block's input in place, or plan without recomputing or moving this stage.",
            )
        self._alters[stage] = altered or (self._alters.get(stage, False))
        if used is given and share_memory(out.tensors, given.tensors):
            # What passes through may be changed in place by what comes next.
            given = given.with_tensors([tensor.clone() for tensor in given.tensors])
        key, notes = (stage, action.microbatch), [] if runner.meeting is None else runner.meeting.notes
        if buffers is not None and buffers != runner.buffer_versions():
            job = self._job(iteration, action, rows, finish, self._rank)
            require_the_same_again(runner, given, job, out, notes, self._addresses.tell(action, iteration.step))
        travels = stage > 0 or self._layout.stages[0].is_at_home(self._rank)
        message = input_message(given if travels else None, reason, notes)
        if self._layout.stages[stage].is_at_home(self._rank):
            iteration.kept[key] = message
        elif self._addresses.ships(stage):
            iteration.put((Kind.R, *key), message, rows, [rows])
        return out

    def _prepare(self, iteration: Iteration, action: Action) -> None:
        """Before a backward: the forward once more, or a graph from what the forward's rank sent."""
        stage, microbatch = action.stage, action.microbatch
        rows = self._addresses.mine(iteration, stage, microbatch, backward=True)
        if not rows.num:
            return
        view = self._layout.stages[stage]
        source = view.forward[view.replica(self._rank, backward=True)]
        if source == self._rank:
            message = iteration.kept.pop((stage, microbatch))
        elif self._addresses.ships(stage):
            message = iteration.pending.pop((Kind.R, stage, microbatch, source)).wait()
            self._began_s = perf_counter()
        else:
            message = input_message(None, PLANNED)
        job = self._job(iteration, action, rows, self._finish(iteration, stage, rows), self._rank)
        is_from_batch = stage == 0 and source != self._rank
        from_batch = gather_forward(self._addresses, iteration, 0, microbatch, rows) if is_from_batch else None
        iteration.graphs[stage, microbatch] = self._shipping.graph(self._runners[stage], message, job, from_batch)

    def _backward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._addresses.mine(iteration, stage, microbatch, backward=True)
        if not rows.num:
            return
        grads: Sequence[Tensor | None] | None = None
        if stage != self._last:
            grads = gather_gradients(self._addresses, iteration, stage, microbatch, rows)
            self._began_s = perf_counter()
        if (stage, microbatch) not in iteration.graphs:
            self._prepare(iteration, action)
        graph = iteration.graphs.pop((stage, microbatch))
        if action.kind == Kind.I:
            iteration.graphs[stage, microbatch] = graph
        if grads is None:
            grads = graph.ones
        with self._meetings.taking(iteration, action, backward=True):
            found = self._runners[stage].backward(graph, grads)
        if stage > 0:
            packed = pack(found)[0]
            iteration.put((Kind.B, stage, microbatch), packed, rows, iteration.rows[stage - 1][microbatch])

    def _weights(self, iteration: Iteration, action: Action) -> None:
        graph = iteration.graphs.pop((action.stage, action.microbatch), None)
        if graph is not None:
            self._runners[action.stage].weights(graph)

    def _send(self, iteration: Iteration, action: Action) -> None:
        send(self._addresses, self._mail, iteration, action)

    def _receive(self, iteration: Iteration, action: Action) -> None:
        pending = receive(self._addresses, self._mail, iteration, action)
        if pending is not None:
            self._arrivals[action] = pending

    def _reduce(self, iteration: Iteration, action: Action) -> None:
        group, parameters = self._groups[action.kind == Kind.REDUCE_TIE, action.stage]
        told = partial(self._addresses.tell, action, iteration.step)
        self._reductions[action] = Reduction(parameters, group, told)
