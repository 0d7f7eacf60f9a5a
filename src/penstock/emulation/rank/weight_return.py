"""Parameters that go back, with the moments at which they did."""

from collections.abc import Sequence
from time import perf_counter

from penstock.program import SEND_KINDS, Action, Kind
from penstock.runtime.executor import Returns

Span = tuple[float, float]


class TimedReturns(Returns):
    """A rank's part in that."""

    def __init__(self, actions: Sequence[Action], *given: object) -> None:
        super().__init__(actions, *given)  # type: ignore[arg-type]
        self._all_actions = actions
        self._began_s = 0.0
        self._ended_s: dict[int, float] = {}

    def start(self, step: int) -> None:
        """Send what is fresh here, let come what is fresh elsewhere."""
        self._ended_s.clear()
        super().start(step)
        self._began_s = perf_counter()

    def finish(self, stage: int) -> None:
        """Wait for the fresh parameters of a stage, if some are on their way."""
        is_coming = stage in self._coming
        super().finish(stage)
        if is_coming:
            self._ended_s[stage] = perf_counter()

    def put_into(self, spans_s: Sequence[Span]) -> list[Span]:
        """The spans of all actions of the rank, with those of these in their places."""
        found = list(spans_s)
        for place, action in enumerate(self._all_actions):
            if action.kind in (Kind.SEND_P, Kind.RECV_P):
                end_s = self._began_s if action.kind in SEND_KINDS else self._ended_s[action.stage]
                found[place] = self._began_s, end_s
        return found
