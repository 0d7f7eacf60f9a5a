"""Weight return of an emulation, with the time of every transfer."""

from collections.abc import Sequence
from time import perf_counter

from penstock.program import Action, Kind
from penstock.runtime.executor import Span, WeightReturn


class TimedWeightReturn:
    """`WeightReturner` that records when weights are sent and received.

    Args:
        weight_return: Sends and receives the weights.
        actions: All actions of this rank.
    """

    def __init__(self, weight_return: WeightReturn, actions: Sequence[Action]) -> None:
        self._weight_return = weight_return
        self._actions = actions
        self._began_s = 0.0
        self._ended_s: dict[int, float] = {}

    def start(self, step: int) -> None:
        """Send the updated weights of this rank, and post receives for the others."""
        self._ended_s.clear()
        self._weight_return.start(step)
        self._began_s = perf_counter()

    def finish(self, stage: int) -> None:
        """Block until the weights of a stage have arrived."""
        if stage in self._weight_return.pending_stages:
            self._weight_return.finish(stage)
            self._ended_s[stage] = perf_counter()

    def finish_all(self) -> None:
        """Block until the weights of all stages have arrived."""
        for stage in self._weight_return.pending_stages:
            self.finish(stage)

    def insert_spans(self, spans_s: Sequence[Span]) -> list[Span]:
        """Return the spans of all actions of this rank, with those of the weight return inserted."""
        result = list(spans_s)
        for index, action in enumerate(self._actions):
            if action.kind in (Kind.SEND_P, Kind.RECV_P):
                end_s = self._began_s if action.kind.is_send else self._ended_s[action.stage]
                result[index] = self._began_s, end_s
        return result
