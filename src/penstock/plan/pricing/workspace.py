"""Workspace: memory that passes need in addition to saved tensors. Known if the profile has single parameter sizes.

- A weight gradient exists before it is accumulated: the size of the largest trained parameter.
- A backward holds the gradients of a layer's input and output. Those that enter or leave a stage count as messages.
- An optimizer step has about as many temporaries of a parameter's size as it has states: two for Adam.
- With a remote backward, returned parameters are held on the forward's device until the forward uses them.
"""

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.profile import Profile


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
    profile: Profile, num_devices: int, replicas: Replicas, grad_bytes: Floats, trained_bytes: Floats
) -> Working:
    """The workspace of every device: `grad_bytes` is over units, `trained_bytes` over stages."""
    largest, passing, waiting = np.zeros(num_devices), np.zeros(num_devices), np.zeros(num_devices)
    if profile.largest_parameter_bytes:
        sizes = np.array(profile.largest_parameter_bytes, dtype=np.float64)
        np.maximum.at(largest, replicas.backward_device, np.maximum.reduceat(sizes, replicas.starts)[replicas.stage])
        inside = _inside(grad_bytes, replicas.starts)[replicas.stage] * replicas.share
        np.maximum.at(passing, replicas.backward_device, inside)
        moved = replicas.forward_device != replicas.backward_device
        np.add.at(waiting, replicas.forward_device[moved], trained_bytes[replicas.stage[moved]])
    return Working(largest + passing + waiting, largest * max(0.0, profile.optimizer_ratio - 1.0))


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
