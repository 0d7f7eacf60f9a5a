"""Evaluation: the forwards of a program, in its order, in eval mode, without saved tensors."""

from collections.abc import Iterable

from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.executor import Executor
from penstock.runtime.executor.messages import gather_forward

FORWARD_KINDS = (Kind.F, Kind.SEND_F, Kind.RECV_F)


class Evaluator(Executor):
    """Runs the forwards of one rank. Its parts must have forward actions only; see `select_forwards`."""

    def _forward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._routing.own_rows(iteration, stage, microbatch, backward=False)
        if not rows.num:
            return
        self._weights.finish(stage)
        inputs = gather_forward(self._routing, iteration, stage, microbatch, rows)
        self._try_loss(iteration, stage, rows, inputs)
        compute_loss = self._make_loss(iteration, stage, rows, microbatch)
        with self._syncs.around(iteration, action, backward=False):
            out = self._runners[stage].evaluate(inputs, iteration.step, rows, compute_loss)
        self._store_output(iteration, action, out, rows)


def select_forwards(actions: Iterable[Action]) -> list[Action]:
    """Return the forward actions of a program. If the program passes the proof, so do its forwards alone."""
    return [action for action in actions if action.kind in FORWARD_KINDS]
