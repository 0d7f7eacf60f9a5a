"""The zero-bubble heuristic of Qi et al. 2023, section 3.1, in plain Python: the reference of `search/rounds.py`.

It orders a straight pipeline, one stage per device, in rounds: first a warm-up, then in every round at most one F and
one I of every stage, with W in between. Three choices give eight variants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.program.actions import Kind

Pass = tuple[Kind, int]
"""Kind and micro-batch."""


class Choices(NamedTuple):
    """The three choices of the heuristic."""

    late_first_backward: bool
    """One more warm-up forward, even if it delays the first backward of its stage."""
    skip_forwards: bool
    """A stage that is two forwards ahead of the next one skips one that would delay a backward."""
    fill_any_gap: bool
    """W also fills a gap that is too short for it; else only where this gap makes the stage's bubble the largest."""


ALL_CHOICES = [Choices(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]


@dataclass
class PlainRounds:
    """One run of the heuristic.

    Attributes:
        forward_s: Over stages.
        input_grad_s: Over stages.
        weight_grad_s: Over stages.
        down_s: Over stages: seconds of the activations that arrive at the stage; 0 for the first.
        up_s: Over stages: seconds of the gradients that arrive at the stage; 0 for the last.
        most_kept: Over stages: micro-batches that it may keep from F to W, at least 1.
        num: Micro-batches.
        choices: The variant.
    """

    forward_s: Sequence[float]
    input_grad_s: Sequence[float]
    weight_grad_s: Sequence[float]
    down_s: Sequence[float]
    up_s: Sequence[float]
    most_kept: Sequence[int]
    num: int
    choices: Choices
    orders: list[list[Pass]] = field(default_factory=list)

    def run(self) -> list[list[Pass]]:
        """The order of every stage."""
        size = len(self.forward_s)
        self.orders = [[] for _ in range(size)]
        self.free_at = [0.0] * size
        self.bubble = [0.0] * size
        self.forward_end: list[list[float]] = [[] for _ in range(size)]
        self.backward_end: list[list[float]] = [[] for _ in range(size)]
        self.num_weights = [0] * size
        self._warm_up()
        for _ in range(1, self.num):
            skipped = self._skipped()
            for stage in range(size):
                if len(self.forward_end[stage]) < self.num and not skipped[stage]:
                    self._forward(stage)
            for stage in reversed(range(size)):
                self._backward(stage)
        for stage in range(size):
            while self.num_weights[stage] < self.num:
                self._weights(stage)
        return self.orders

    def _warm_up(self) -> None:
        """The first micro-batch; then as many forwards as fit in front of the first backward."""
        size = len(self.forward_s)
        for stage in range(size):
            self._forward(stage)
        more = [0] * size
        due = self.free_at[-1] + self.input_grad_s[-1]
        for stage in range(size - 2, -1, -1):
            due += self.up_s[stage]
            clock = self.free_at[stage]
            while 1 + more[stage] < min(self.num, self.most_kept[stage]):
                if clock + self.forward_s[stage] > due:
                    if self.choices.late_first_backward and clock < due:
                        more[stage] += 1
                        clock += self.forward_s[stage]
                    break
                more[stage] += 1
                clock += self.forward_s[stage]
            due = max(due, clock) + self.input_grad_s[stage]
        # Every stage is ahead of the next one, so that forwards of a round do not wait for each other.
        for stage in range(1, size):
            while more[stage] > 0 and more[stage] >= more[stage - 1] and 1 + more[stage] < self.num:
                more[stage] -= 1
            more[stage] = min(more[stage], more[stage - 1])
        for stage in range(size):
            for _ in range(more[stage]):
                self._forward(stage)
        for stage in reversed(range(size)):
            self._backward(stage)

    def _skipped(self) -> list[bool]:
        """Whether each stage skips its forward of this round."""
        size = len(self.forward_s)
        skipped = [False] * size
        if not self.choices.skip_forwards:
            return skipped
        for stage in range(size - 1):
            if len(self.forward_end[stage]) >= len(self.forward_end[stage + 1]) + 2:
                due = (
                    self.free_at[stage + 1]
                    + self.forward_s[stage + 1]
                    + self.input_grad_s[stage + 1]
                    + self.up_s[stage]
                )
                freed = max(self._kept(stage) + 1 - self.most_kept[stage], 0) * self.weight_grad_s[stage]
                skipped[stage] = self.free_at[stage] + freed + self.forward_s[stage] > due
        return skipped

    def _kept(self, stage: int) -> int:
        return len(self.forward_end[stage]) - self.num_weights[stage]

    def _forward(self, stage: int) -> None:
        microbatch = len(self.forward_end[stage])
        ready = self.forward_end[stage - 1][microbatch] + self.down_s[stage] if stage else 0.0
        while self._kept(stage) >= self.most_kept[stage] and self._has_weights(stage):
            self._weights(stage)
        self._fill(stage, ready)
        self.forward_end[stage].append(self._put(stage, Kind.F, microbatch, ready, self.forward_s[stage]))

    def _backward(self, stage: int) -> None:
        microbatch = len(self.backward_end[stage])
        if microbatch >= len(self.forward_end[stage]):
            self._forward(stage)
        if stage == len(self.forward_s) - 1:
            ready = self.forward_end[stage][microbatch]
        else:
            ready = self.backward_end[stage + 1][microbatch] + self.up_s[stage]
        self._fill(stage, ready)
        self.backward_end[stage].append(self._put(stage, Kind.I, microbatch, ready, self.input_grad_s[stage]))

    def _has_weights(self, stage: int) -> bool:
        return self.num_weights[stage] < len(self.backward_end[stage])

    def _fill(self, stage: int, ready: float) -> None:
        """Weight gradients in the wait for a pass."""
        while self._has_weights(stage) and self.free_at[stage] + self.weight_grad_s[stage] <= ready:
            self._weights(stage)
        gap = ready - self.free_at[stage]
        if self._has_weights(stage) and gap > 0:
            largest = max(self.bubble) if self.choices.fill_any_gap else max(self.bubble[: stage + 1])
            if self.bubble[stage] + gap > largest:
                self._weights(stage)

    def _weights(self, stage: int) -> None:
        self._put(stage, Kind.W, self.num_weights[stage], 0.0, self.weight_grad_s[stage])
        self.num_weights[stage] += 1

    def _put(self, stage: int, kind: Kind, microbatch: int, ready: float, seconds: float) -> float:
        if self.orders[stage]:
            self.bubble[stage] += max(ready - self.free_at[stage], 0.0)
        self.free_at[stage] = max(self.free_at[stage], ready) + seconds
        self.orders[stage].append((kind, microbatch))
        return self.free_at[stage]
