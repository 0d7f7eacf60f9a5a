"""The loss without training: forwards only, in the order of the program, in eval mode, nothing saved."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import nn

from penstock.program import Action, Kind
from penstock.runtime.executor.context import Iteration
from penstock.runtime.executor.executor import Executor
from penstock.runtime.executor.stage_inputs import gather_forward

KINDS = (Kind.F, Kind.SEND_F, Kind.RECV_F)


class Evaluator(Executor):
    """Does the forwards of one rank."""

    def _forward(self, iteration: Iteration, action: Action) -> None:
        stage, microbatch = action.stage, action.microbatch
        rows = self._addresses.mine(iteration, stage, microbatch, backward=False)
        if not rows.num:
            return
        self._before_forward(stage)
        given = gather_forward(self._addresses, iteration, stage, microbatch, rows)
        finish = self._finish(iteration, stage, rows)
        with self._meetings.taking(iteration, action, backward=False):
            out = self._runners[stage].evaluate(given, iteration.step, rows, finish)
        self._deliver(iteration, action, out, rows)


def forwards_of(actions: Iterable[Action]) -> list[Action]:
    """What is left of a program that proves is one that proves."""
    return [action for action in actions if action.kind in KINDS]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """All modules in eval mode, and afterwards each as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
