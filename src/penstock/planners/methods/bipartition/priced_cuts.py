"""Two sets of cuts with what the mismatch ships as part of the price.

Between stages k and k + 1 lie a forward cut p and a backward cut q. The units between them have their forward on one of
the two devices and their backward on the other: what the forward saved goes over for every micro-batch (or only their
input, and the backward's device recomputes), and their parameters come back once an iteration. No units are moved
further than to the next stage, so max(p', q') <= min(p, q) from one pair of cuts to the next. Then

- what passes between two stages depends on their own p and q alone, and
- F(p', p) + B(q', q) = (F[p] + B[q]) - (F[p'] + B[q']), so of all pairs (p', q') with max(p', q') <= x = min(p, q)
  only the largest F[p'] + B[q'] matters (less what must be recomputed): a running extremum over x.

So a bottleneck T is decided in O(stages units^2), whatever links and devices are like.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats

CLOSE_ENOUGH = 1e-4
"""The bottleneck is found to within this part of itself: it is a price, and the simulator judges in the end."""
MOST_ROUNDS = 20


class Joint(NamedTuple):
    """The cuts between two stages, and whether the units between the cuts are recomputed."""

    p: int
    q: int
    again: int


@dataclass(frozen=True, eq=False)
class Row:
    """Stages in a row. Arrays are over the cuts, from 0 to the number of units."""

    forward: Sequence[Floats]
    """Running sums, stage by stage, of seconds on its device."""
    backward: Sequence[Floats]
    rates: Sequence[tuple[float, float]]
    """Bytes a second from each stage to the next, and back from there."""
    cut_bytes: Floats
    """What crosses each cut; zero at both ends."""
    input_bytes: Floats
    """The input of what begins at each cut."""
    saved_bytes: Floats
    """Running sums."""
    parameter_bytes: Floats
    """Running sums, for one micro-batch: divided by how many there are."""

    @property
    def end(self) -> int:
        """The last cut."""
        return len(self.cut_bytes) - 1

    @cached_property
    def _lags(self) -> npt.NDArray[np.bool_]:
        """[p, q]: whether the backward of what lies between is a stage later than its forward."""
        return np.tri(self.end + 1, k=-1, dtype=bool)

    @cached_property
    def _shipped(self) -> tuple[Floats, Floats]:
        """[again, p, q]: bytes that the mismatch sends to the next stage, and back from it."""
        saved = np.abs(self.saved_bytes[:, None] - self.saved_bytes[None, :])
        cuts = np.arange(self.end + 1)
        kept = np.stack([saved, np.where(saved > 0, self.input_bytes[np.minimum.outer(cuts, cuts)], 0.0)])
        returned = np.abs(self.parameter_bytes[:, None] - self.parameter_bytes[None, :])
        return np.where(self._lags, kept, returned), np.where(self._lags, returned, kept)

    def load(self, joint: int, weight: float) -> Floats:
        """[again, p, q]: seconds for which the busier direction is occupied, with what the mismatch ships weighted."""
        rates = self.rates[joint]
        crossing = (self.cut_bytes[:, None] / rates[0], self.cut_bytes[None, :] / rates[1])
        if np.isinf(weight):
            together = np.where(np.eye(self.end + 1, dtype=bool), np.maximum(*crossing), np.inf)
            return np.stack([together, together])
        down, up = (
            plain + weight * (size / rate) for plain, size, rate in zip(crossing, self._shipped, rates, strict=True)
        )
        return np.maximum(down, up)

    @cached_property
    def stages(self) -> list[tuple[Floats, Floats]]:
        """For each stage: what is done when it begins, and when it ends, at [again, p, q]; equal devices share them.

        What the stage must recompute is taken off the first where it lies at its beginning, and added to the second
        where it lies at its end.
        """
        found: dict[tuple[bytes, bytes], tuple[Floats, Floats]] = {}
        keys = [(ahead.tobytes(), back.tobytes()) for ahead, back in zip(self.forward, self.backward, strict=True)]
        for key, ahead, back in zip(keys, self.forward, self.backward, strict=True):
            if key not in found:
                done = np.add.outer(ahead, back)
                between = np.subtract.outer(ahead, ahead)
                found[key] = (
                    np.stack([done, done - np.maximum(between, 0.0)]),
                    np.stack([done, done + np.maximum(-between, 0.0)]),
                )
        return [found[key] for key in keys]


def priced_cuts(row: Row, weight: float, *, at_least_s: float = 0.0) -> list[Joint]:
    """The joints, from the first cut to the last, with the least maximum over stages and what passes between them.

    No bottleneck below `at_least_s` is tried.
    """
    loads = [row.load(joint, weight) for joint in range(len(row.rates))]
    everything = max(float(ahead[-1]) for ahead in row.forward) + max(float(back[-1]) for back in row.backward)
    low, high = at_least_s, at_least_s * (1 + CLOSE_ENOUGH)
    reached = _reach(row, loads, high)
    if reached is None:
        high = everything * (1 + CLOSE_ENOUGH)
        reached = _reach(row, loads, high)
    assert reached is not None, "one stage may take everything, and then nothing passes"
    while high - low > CLOSE_ENOUGH * high:
        middle = (low + high) / 2
        found = _reach(row, loads, middle)
        if found is None:
            low = middle
        else:
            reached, high = found, middle
    return _even_out(row, loads, _trace(row, loads, reached, high))


def _reach(row: Row, loads: list[Floats], limit: float) -> list[npt.NDArray[np.bool_]] | None:
    """Which joints can be reached with no stage and no link over the limit; None if the end cannot."""
    from penstock.planners.methods.bipartition.kernel import reach_joints

    best = np.zeros(row.end + 1)  # the most that is done where a stage begins, over all joints up to each cut
    reached = []
    for stage, load in enumerate(loads):
        found, best = reach_joints(row.stages[stage][1], row.stages[stage + 1][0], load, best, limit)
        reached.append(found)
    return reached if row.stages[-1][1][0, -1, -1] - best[-1] <= limit else None


def _trace(row: Row, loads: list[Floats], reached: list[npt.NDArray[np.bool_]], limit: float) -> list[Joint]:
    """From the end backwards: of the joints that can be reached, the one over which least passes."""
    joints = [Joint(row.end, row.end, 0)]
    for stage in reversed(range(1, len(row.forward))):
        behind = joints[-1]
        span = slice(0, min(behind.p, behind.q) + 1)
        begun, ended = row.stages[stage]
        left = ended[behind.again, behind.p, behind.q] - begun[:, span, span]
        open_ = reached[stage - 1][:, span, span] & (left <= limit)
        price = np.where(open_, loads[stage - 1][:, span, span], np.inf)
        again, p, q = np.unravel_index(int(np.argmin(price)), price.shape)
        joints.append(Joint(int(p), int(q), int(again)))
    return [Joint(0, 0, 0), *joints[::-1]]


def _even_out(row: Row, loads: list[Floats], joints: list[Joint]) -> list[Joint]:
    """Move each joint to where the slowest of its two stages and of what passes between them is fastest."""
    joints = list(joints)
    for _ in range(MOST_ROUNDS):
        before = list(joints)
        for place in range(1, len(joints) - 1):
            front, behind = joints[place - 1], joints[place + 1]
            first, last = max(front.p, front.q), min(behind.p, behind.q)
            span = slice(first, last + 1)
            (begun, end_left), (begin_right, ended) = row.stages[place - 1], row.stages[place]
            left = end_left[:, span, span] - begun[front.again, front.p, front.q]
            right = ended[behind.again, behind.p, behind.q] - begin_right[:, span, span]
            load = loads[place - 1][:, span, span]
            slowest = np.maximum(np.maximum(left, right), load)
            here = joints[place]
            now = (here.again, here.p - first, here.q - first)
            again, p, q = np.unravel_index(int(np.argmin(slowest)), slowest.shape)
            if slowest[again, p, q] < slowest[now] * (1 - CLOSE_ENOUGH):
                joints[place] = Joint(int(p) + first, int(q) + first, int(again))
        if joints == before:
            break
    return joints
