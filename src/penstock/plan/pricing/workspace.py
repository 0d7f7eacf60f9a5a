"""Workspace: memory that passes need in addition to saved tensors.

The first, if the profile has checkpointed layers; the others, if it has the sizes of single parameters.

- The backward of a layer with activation checkpointing inside holds what it computes again: its largest checkpointed
  part, as the next one runs when the backward of the last one has ended.
- A weight gradient exists before it is accumulated: the size of the largest trained parameter.
- A backward holds the gradients of a layer's input and output. Those that enter or leave a stage count as messages.
- An optimizer step has about as many temporaries of a parameter's size as it has states: two for Adam.
- With a remote backward, returned parameters are held on the forward's device until the forward uses them.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.profile import Profile, UnitCosts


@dataclass(frozen=True, eq=False)
class Working:
    """Bytes over devices."""

    all_the_time: Floats
    more_at_step: Floats


@dataclass(frozen=True, eq=False)
class Replicas:
    """The replicas of a plan: the first unit of each stage, and each replica's share and devices."""

    starts: Ints
    stage: Ints
    share: Floats
    forward_device: Ints
    backward_device: Ints


def working_bytes(
    profile: Profile, num_devices: int, replicas: Replicas, sizes: UnitCosts, trained_bytes: Floats
) -> Working:
    """The workspace of every device: `sizes` are those of a micro-batch, `trained_bytes` is over stages."""
    largest, passing, waiting, recomputed = (np.zeros(num_devices) for _ in range(4))
    if sizes.recomputed_bytes.any():
        again = np.maximum.reduceat(sizes.recomputed_bytes, replicas.starts)[replicas.stage] * replicas.share
        np.maximum.at(recomputed, replicas.backward_device, again)
    if profile.largest_parameter_bytes:
        parameters = np.array(profile.largest_parameter_bytes, dtype=np.float64)
        of_stages = np.maximum.reduceat(parameters, replicas.starts)
        np.maximum.at(largest, replicas.backward_device, of_stages[replicas.stage])
        inside = _inside(sizes.grad_bytes, replicas.starts)[replicas.stage] * replicas.share
        np.maximum.at(passing, replicas.backward_device, inside)
        moved = replicas.forward_device != replicas.backward_device
        np.add.at(waiting, replicas.forward_device[moved], trained_bytes[replicas.stage[moved]])
    return Working(largest + passing + waiting + recomputed, largest * max(0.0, profile.optimizer_ratio - 1.0))


def _inside(grad_bytes: Floats, starts: Ints) -> Floats:
    """Over stages: the largest sum of the gradients at both ends of a unit, without those that are messages.

    >>> _inside(np.array([4.0, 6.0, 1.0, 9.0]), np.array([0, 3]))
    array([10.,  0.])
    """
    before = np.concatenate([[0.0], grad_bytes[:-1]])
    before[starts] = 0.0
    after = grad_bytes.copy()
    after[np.append(starts[1:], len(grad_bytes)) - 1] = 0.0
    return np.asarray(np.maximum.reduceat(before + after, starts))
