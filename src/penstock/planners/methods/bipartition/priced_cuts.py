"""Two sets of cuts, with the transfers for remote backwards as part of the price.

Between stages k and k + 1 lie a forward cut p and a backward cut q. The layers between them have their forward on one
of the two devices and their backward on the other: their saved tensors are transferred for every micro-batch (or only
their input, and the backward's device recomputes), and their parameters return once per iteration. No backward is
further away than the next stage, so max(p', q') <= min(p, q) from one pair of cuts to the next. Then

- the transfers between two stages depend only on their own p and q, and
- F(p', p) + B(q', q) = (F[p] + B[q]) - (F[p'] + B[q']), so of all pairs (p', q') with max(p', q') <= x = min(p, q)
  only the largest F[p'] + B[q'] matters (minus recomputation): a running maximum over x.

So a bottleneck T is decided in O(stages layers^2), for any links and devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats

CLOSE_ENOUGH = 1e-4
"""Relative precision of the bottleneck. It is only a price: the simulator makes the final choice."""
MAX_ROUNDS = 20


class Joint(NamedTuple):
    """The cuts between two stages, and whether the layers between the cuts are recomputed."""

    p: int
    q: int
    recompute: int


@dataclass(frozen=True, eq=False)
class Row:
    """Stages in a row. Arrays are over the cuts, from 0 to the number of layers."""

    forward: Sequence[Floats]
    """For each stage, running sums of the layers' seconds on its device."""
    backward: Sequence[Floats]
    rates: Sequence[tuple[float, float]]
    """Bytes per second from each stage to the next, and in the opposite direction."""
    cut_bytes: Floats
    """Bytes that cross each cut; 0 at both ends."""
    input_bytes: Floats
    """Input bytes of a stage that begins at each cut."""
    saved_bytes: Floats
    """Running sums."""
    parameter_bytes: Floats
    """Running sums, divided by the number of micro-batches."""

    @property
    def end(self) -> int:
        """The last cut."""
        return len(self.cut_bytes) - 1

    @cached_property
    def _lags(self) -> npt.NDArray[np.bool_]:
        """[p, q]: whether the backward of the layers between is a stage later than their forward."""
        return np.tri(self.end + 1, k=-1, dtype=bool)

    @cached_property
    def _transferred(self) -> tuple[Floats, Floats]:
        """[recompute, p, q]: bytes for remote backwards to the next stage, and from it."""
        saved = np.abs(self.saved_bytes[:, None] - self.saved_bytes[None, :])
        cuts = np.arange(self.end + 1)
        kept = np.stack([saved, np.where(saved > 0, self.input_bytes[np.minimum.outer(cuts, cuts)], 0.0)])
        returned = np.abs(self.parameter_bytes[:, None] - self.parameter_bytes[None, :])
        return np.where(self._lags, kept, returned), np.where(self._lags, returned, kept)

    def load(self, joint: int, weight: float) -> Floats:
        """[recompute, p, q]: seconds of the busier direction, with transfers for remote backwards weighted."""
        rates = self.rates[joint]
        crossing = (self.cut_bytes[:, None] / rates[0], self.cut_bytes[None, :] / rates[1])
        if np.isinf(weight):
            together = np.where(np.eye(self.end + 1, dtype=bool), np.maximum(*crossing), np.inf)
            return np.stack([together, together])
        down, up = (
            plain + weight * (size / rate) for plain, size, rate in zip(crossing, self._transferred, rates, strict=True)
        )
        return np.maximum(down, up)

    @cached_property
    def stages(self) -> list[tuple[Floats, Floats]]:
        """For each stage: the work done at its begin and at its end, [recompute, p, q]; equal devices share arrays.

        Recomputation at the begin of the stage is subtracted from the first array; recomputation at its end is added to
        the second.
        """
        stage_tables: dict[tuple[bytes, bytes], tuple[Floats, Floats]] = {}
        keys = [(ahead.tobytes(), back.tobytes()) for ahead, back in zip(self.forward, self.backward, strict=True)]
        for key, ahead, back in zip(keys, self.forward, self.backward, strict=True):
            if key not in stage_tables:
                done = np.add.outer(ahead, back)
                between = np.subtract.outer(ahead, ahead)
                stage_tables[key] = (
                    np.stack([done, done - np.maximum(between, 0.0)]),
                    np.stack([done, done + np.maximum(-between, 0.0)]),
                )
        return [stage_tables[key] for key in keys]


def priced_cuts(row: Row, weight: float, *, at_least_s: float = 0.0) -> list[Joint]:
    """The joints, from the first cut to the last, with the least maximum over stages and transfers between them.

    The search tries no bottleneck below `at_least_s`.
    """
    loads = [row.load(joint, weight) for joint in range(len(row.rates))]
    everything = max(float(ahead[-1]) for ahead in row.forward) + max(float(back[-1]) for back in row.backward)
    low, high = at_least_s, at_least_s * (1 + CLOSE_ENOUGH)
    reached = _reach(row, loads, high)
    if reached is None:
        high = everything * (1 + CLOSE_ENOUGH)
        reached = _reach(row, loads, high)
    assert reached is not None, "one stage with all layers needs no transfers"
    while high - low > CLOSE_ENOUGH * high:
        middle = (low + high) / 2
        attempt = _reach(row, loads, middle)
        if attempt is None:
            low = middle
        else:
            reached, high = attempt, middle
    return _even_out(row, loads, _trace(row, loads, reached, high))


def _reach(row: Row, loads: list[Floats], limit: float) -> list[npt.NDArray[np.bool_]] | None:
    """The joints that can be reached without a stage or link over the limit; None if the end cannot."""
    from penstock.planners.methods.bipartition.kernel import reach_joints

    best = np.zeros(row.end + 1)  # the most work done where a stage begins, over all joints up to each cut
    reached = []
    for stage, load in enumerate(loads):
        within, best = reach_joints(row.stages[stage][1], row.stages[stage + 1][0], load, best, limit)
        reached.append(within)
    return reached if row.stages[-1][1][0, -1, -1] - best[-1] <= limit else None


def _trace(row: Row, loads: list[Floats], reached: list[npt.NDArray[np.bool_]], limit: float) -> list[Joint]:
    """Trace from the end: of the reachable joints, take the one with the least transfers."""
    joints = [Joint(row.end, row.end, 0)]
    for stage in reversed(range(1, len(row.forward))):
        following = joints[-1]
        span = slice(0, min(following.p, following.q) + 1)
        begun, ended = row.stages[stage]
        left = ended[following.recompute, following.p, following.q] - begun[:, span, span]
        open_ = reached[stage - 1][:, span, span] & (left <= limit)
        price = np.where(open_, loads[stage - 1][:, span, span], np.inf)
        recompute, p, q = np.unravel_index(int(np.argmin(price)), price.shape)
        joints.append(Joint(int(p), int(q), int(recompute)))
    return [Joint(0, 0, 0), *joints[::-1]]


def _even_out(row: Row, loads: list[Floats], joints: list[Joint]) -> list[Joint]:
    """Move each joint to where the slowest of its two stages and their transfers is fastest."""
    joints = list(joints)
    for _ in range(MAX_ROUNDS):
        before = list(joints)
        for index in range(1, len(joints) - 1):
            previous, following = joints[index - 1], joints[index + 1]
            first, last = max(previous.p, previous.q), min(following.p, following.q)
            span = slice(first, last + 1)
            (begun, end_left), (begin_right, ended) = row.stages[index - 1], row.stages[index]
            left = end_left[:, span, span] - begun[previous.recompute, previous.p, previous.q]
            right = ended[following.recompute, following.p, following.q] - begin_right[:, span, span]
            load = loads[index - 1][:, span, span]
            slowest = np.maximum(np.maximum(left, right), load)
            current = joints[index]
            current_index = (current.recompute, current.p - first, current.q - first)
            recompute, p, q = np.unravel_index(int(np.argmin(slowest)), slowest.shape)
            if slowest[recompute, p, q] < slowest[current_index] * (1 - CLOSE_ENOUGH):
                joints[index] = Joint(int(p) + first, int(q) + first, int(recompute))
        if joints == before:
            break
    return joints
