"""The flows between devices in an iteration: one for every pair of devices with rows in common.

F  activations  of stage k to stage k+1, every micro-batch
B  gradients    of stage k to stage k-1, every micro-batch
S  saved tensors of stage k from its forward to its backward device, every micro-batch
P  parameters   of stage k, the trained ones, from its backward to its forward device, once after the optimizer step
                (not to a device that also trains another share of the stage: it has them already)
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from penstock.arrays import Ints
from penstock.plan.pricing.row_overlap import overlaps

if TYPE_CHECKING:
    from penstock.plan.pricing.costs import Costs


ACTIVATION, GRADIENT, SAVED, PARAMETERS = range(4)

NONE = -1


@dataclass(frozen=True, eq=False)
class Flows:
    """Arrays over flows between different devices, and the pairs of replicas on the same device."""

    what: Ints
    source_replica: Ints
    target_replica: Ints
    source: Ints
    target: Ints
    num_bytes: npt.NDArray[np.float64]
    local_forward: Ints
    """Pairs (earlier replica, later replica) whose activations stay on one device."""
    local_backward: Ints
    """Pairs (later replica, earlier replica) whose gradients stay on one device."""

    def __len__(self) -> int:
        return len(self.what)

    def outgoing(self, what: npt.ArrayLike, replica: npt.ArrayLike, peer: npt.ArrayLike) -> Ints:
        """The flows of a kind from a source replica to a device; NONE where there is no such flow."""
        return self._outgoing.find(what, replica, peer)

    def incoming(self, what: npt.ArrayLike, replica: npt.ArrayLike, peer: npt.ArrayLike) -> Ints:
        """The flows of a kind to a target replica from a device; NONE where there is no such flow."""
        return self._incoming.find(what, replica, peer)

    @cached_property
    def _outgoing(self) -> "_Index":
        return _Index(self.what, self.source_replica, self.target)

    @cached_property
    def _incoming(self) -> "_Index":
        return _Index(self.what, self.target_replica, self.source)


class _Index:
    """Finds flows by their content, the replica at one end and the device at the other."""

    def __init__(self, what: Ints, replica: Ints, peer: Ints) -> None:
        self._bounds = tuple(int(values.max()) + 1 if len(values) else 0 for values in (what, replica, peer))
        keys = self._key(what, replica, peer)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, what: npt.ArrayLike, replica: npt.ArrayLike, peer: npt.ArrayLike) -> Ints:
        parts = np.broadcast_arrays(*(np.asarray(part, dtype=np.int64) for part in (what, replica, peer)))
        if not len(self._keys):
            return np.full(parts[0].shape, NONE, dtype=np.int64)
        wanted = self._key(*parts)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        known = self._keys[at] == wanted
        for part, bound in zip(parts, self._bounds, strict=True):
            known &= (part >= 0) & (part < bound)
        return np.where(known, self._order[at], NONE)

    def _key(self, what: Ints, replica: Ints, peer: Ints) -> Ints:
        return (what * self._bounds[1] + replica) * self._bounds[2] + peer


def find_flows(costs: "Costs") -> Flows:
    """The flows of a plan, activations first, then gradients, saved tensors and parameters."""
    rows: list[tuple[int, int, int, int, int, float]] = []
    local: dict[int, list[tuple[int, int]]] = {ACTIVATION: [], GRADIENT: []}
    num_stages = len(costs.replica_offsets) - 1
    devices = {ACTIVATION: costs.forward_device, GRADIENT: costs.backward_device}
    meetings = []
    for stage in range(num_stages - 1):
        left, right = costs.replicas(stage), costs.replicas(stage + 1)
        for overlap in overlaps(costs.share[left].tolist(), costs.share[right].tolist()):
            meetings.append((stage, left.start + overlap.left, right.start + overlap.right, overlap.share))
    for what, num_bytes in ((ACTIVATION, costs.output_bytes), (GRADIENT, costs.output_grad_bytes)):
        for stage, early, late, portion in meetings:
            source, target = (early, late) if what == ACTIVATION else (late, early)
            size = float(num_bytes[stage]) * portion
            pair = int(devices[what][source]), int(devices[what][target])
            if pair[0] == pair[1]:
                local[what].append((source, target))
            else:
                rows.append((what, source, target, *pair, size))
    moved = np.flatnonzero(costs.forward_device != costs.backward_device).tolist()
    for replica in moved:
        size = float(costs.kept_bytes[costs.replica_stage[replica]] * costs.share[replica])
        pair = int(costs.forward_device[replica]), int(costs.backward_device[replica])
        rows.append((SAVED, replica, replica, *pair, size))
    for replica in moved:
        stage = int(costs.replica_stage[replica])
        size = float(costs.trained_bytes[stage])
        trained_here = costs.forward_device[replica] in costs.backward_device[costs.replicas(stage)]
        if size > 0 and not trained_here:
            pair = int(costs.backward_device[replica]), int(costs.forward_device[replica])
            rows.append((PARAMETERS, replica, replica, *pair, size))
    table = np.array([row[:5] for row in rows], dtype=np.int64).reshape(-1, 5)
    return Flows(
        what=table[:, 0],
        source_replica=table[:, 1],
        target_replica=table[:, 2],
        source=table[:, 3],
        target=table[:, 4],
        num_bytes=np.array([row[5] for row in rows]),
        local_forward=np.array(local[ACTIVATION], dtype=np.int64).reshape(-1, 2),
        local_backward=np.array(local[GRADIENT], dtype=np.int64).reshape(-1, 2),
    )
