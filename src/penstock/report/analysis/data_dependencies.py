"""The data dependencies of a program: for each action the actions whose results it needs.

The graph follows from the program and its plan alone, so that a timeline file without its profile and cluster has one
too. Receives have no entries of their own: an action that needs a received payload needs its send.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Bools, Ints
from penstock.plan import Group
from penstock.plan.pricing import overlaps
from penstock.program import NONE, Kind, Program
from penstock.report.analysis.messages import sends_and_consumers
from penstock.timeline import Timeline

Ties = Mapping[int, tuple[int, ...]]
"""The stages that share parameters, by the number of their all-reduce."""

AnyInts = npt.NDArray[np.signedinteger[Any]]
_BACKWARDS = (Kind.I, Kind.B)


class DataDependencies(NamedTuple):
    """The actions that action `a` needs are needs[begin[a]:begin[a + 1]]."""

    begin: Ints
    needs: Ints


def find_data_dependencies(timeline: Timeline, ties: Ties | None = None) -> DataDependencies:
    """Find the direct dependencies of every action.

    Args:
        timeline: A timeline of a lowered program.
        ties: The stages behind each all-reduce of shared parameters. Without it, such an all-reduce needs the last
            gradient of its device, and an optimizer step needs it only if it is the cause of the step's start.

    Returns:
        The dependencies of all actions, those of the next or previous stage before those of the same stage.
    """
    program = timeline.program
    edges = [*_pass_edges(program), *_closing_edges(timeline, ties)]
    earlier = np.concatenate([edge[0] for edge in edges])
    later = np.concatenate([edge[1] for edge in edges])
    order = np.argsort(later, kind="stable")
    begin = np.searchsorted(later[order], np.arange(program.num_actions + 1))
    return DataDependencies(begin.astype(np.int64), earlier[order])


class _ActionTable:
    """Finds the actions of a program by kind, device, stage and micro-batch."""

    def __init__(self, program: Program) -> None:
        self._program = program
        # Queries go one beyond the stages of the program, on both sides. Micro-batches count from NONE = -1.
        self._num_stages = int(program.stage.max(initial=0)) + 3
        self._num_microbatches = int(program.microbatch.max(initial=0)) + 2
        keys = self._key(program.kind, program.device_of, program.stage, program.microbatch)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, kinds: tuple[Kind, ...], actions: Ints, *, stage_step: int = 0) -> Ints:
        """For each action the one of these kinds on its device, for its micro-batch and a stage near it; or NONE."""
        program = self._program
        device, microbatch = program.device_of[actions], program.microbatch[actions]
        stage = program.stage[actions] + stage_step
        matches = np.full(len(actions), NONE, dtype=np.int64)
        for kind in kinds:
            key = self._key(np.full(len(actions), kind), device, stage, microbatch)
            at = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
            matches = np.where((matches == NONE) & (self._keys[at] == key), self._order[at], matches)
        return matches

    def _key(self, kind: AnyInts, device: AnyInts, stage: AnyInts, microbatch: AnyInts) -> Ints:
        key = device.astype(np.int64) * len(Kind) + kind
        return (key * self._num_stages + stage + 1) * self._num_microbatches + microbatch + 1


def _pass_edges(program: Program) -> list[tuple[Ints, Ints]]:
    """Edges (earlier, later) to passes and sends."""
    table, local = _ActionTable(program), _LocalRows(program)

    def select(*kinds: Kind) -> Ints:
        return np.flatnonzero(np.isin(program.kind, kinds))

    def linked(later: Ints, earlier: Ints, is_needed: Bools | None = None) -> tuple[Ints, Ints]:
        known = earlier != NONE if is_needed is None else (earlier != NONE) & is_needed
        return earlier[known], later[known]

    forward, recompute, backward = select(Kind.F), select(Kind.R), select(*_BACKWARDS)
    recomputed = table.find((Kind.R,), backward)
    saved = local.of(local.saved, backward) & (recomputed == NONE)
    sends = np.array(sends_and_consumers(program), dtype=np.int64).reshape(-1, 2)
    sent = {kind: sends[program.kind[sends[:, 0]] == kind] for kind in (Kind.SEND_F, Kind.SEND_B, Kind.SEND_S)}
    return [
        linked(forward, table.find((Kind.F,), forward, stage_step=-1), local.of(local.forward, forward)),
        (sent[Kind.SEND_F][:, 0], sent[Kind.SEND_F][:, 1]),
        linked(backward, table.find(_BACKWARDS, backward, stage_step=1), local.of(local.backward, backward)),
        (sent[Kind.SEND_B][:, 0], sent[Kind.SEND_B][:, 1]),
        linked(backward, recomputed),
        linked(backward, table.find((Kind.F,), backward), saved),
        linked(recompute, table.find((Kind.F,), recompute), local.of(local.saved, recompute)),
        (sent[Kind.SEND_S][:, 0], sent[Kind.SEND_S][:, 1]),
        *(
            linked(select(*kinds), table.find(sources, select(*kinds)))
            for kinds, sources in (
                ((Kind.W,), (Kind.I,)),
                ((Kind.SEND_F, Kind.SEND_S), (Kind.F,)),
                ((Kind.SEND_B,), _BACKWARDS),
                ((Kind.SEND_P,), (Kind.STEP,)),
            )
        ),
    ]


class _LocalRows:
    """Over stages and devices: whether a device needs rows of its own results, which no message carries."""

    def __init__(self, program: Program) -> None:
        plan = program.plan
        self._program = program
        self._index = {name: number for number, name in enumerate(program.devices)}
        shape = plan.num_stages, len(program.devices)
        self.forward, self.backward, self.saved = (np.zeros(shape, dtype=np.bool_) for _ in range(3))
        for number, stage in enumerate(plan.stages):
            self._mark(self.saved[number], stage.forward, stage.backward)
        for number, (stage, following) in enumerate(zip(plan.stages[:-1], plan.stages[1:], strict=True)):
            self._mark(self.forward[number + 1], stage.forward, following.forward)
            self._mark(self.backward[number], stage.backward, following.backward)

    def of(self, table: Bools, actions: Ints) -> Bools:
        """The entries of a table for some actions; False for stages that the plan does not have."""
        stage = self._program.stage[actions]
        known = (stage >= 0) & (stage < len(table))
        return known & table[np.where(known, stage, 0), self._program.device_of[actions]]

    def _mark(self, row: Bools, left: Group, right: Group) -> None:
        """Mark the devices that have rows in common with themselves in two groups."""
        shares = [replica.share for replica in left], [replica.share for replica in right]
        for overlap in overlaps(*shares):
            device = left[overlap.left].device
            if device == right[overlap.right].device and device in self._index:
                row[self._index[device]] = True


def _closing_edges(timeline: Timeline, ties: Ties | None) -> list[tuple[Ints, Ints]]:
    """Edges to reductions and optimizer steps. A gradient is complete after its last W or B on the device."""
    program = timeline.program
    last: dict[tuple[int, int | None], int] = {}
    for action in np.flatnonzero(np.isin(program.kind, (Kind.W, Kind.B))).tolist():
        device = int(program.device_of[action])
        last[device, int(program.stage[action])] = last[device, None] = action
    reductions: dict[int, list[int]] = {}
    for action in np.flatnonzero(np.isin(program.kind, (Kind.REDUCE_GRAD, Kind.REDUCE_TIE))).tolist():
        reductions.setdefault(int(program.device_of[action]), []).append(action)
    pairs: list[tuple[int, int]] = []
    for device, actions in reductions.items():
        for action in actions:
            pairs += [
                (last[device, stage], action) for stage in _reduced(program, action, ties) if (device, stage) in last
            ]
    for step in np.flatnonzero(program.kind == Kind.STEP).tolist():
        device, stage = int(program.device_of[step]), int(program.stage[step])
        for action in reductions.get(device, ()):
            known = program.kind[action] == Kind.REDUCE_GRAD or ties is not None
            if stage in _reduced(program, action, ties) if known else timeline.cause[step] == action:
                pairs.append((action, step))
        if (device, stage) in last:
            pairs.append((last[device, stage], step))
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return [(edges[:, 0], edges[:, 1])]


def _reduced(program: Program, reduction: int, ties: Ties | None) -> tuple[int | None, ...]:
    """The stages whose gradients a reduction sums; None stands for all stages of the device."""
    number = int(program.stage[reduction])
    if program.kind[reduction] == Kind.REDUCE_GRAD:
        return (number,)
    return (None,) if ties is None else ties.get(number, ())
