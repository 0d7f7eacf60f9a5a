"""Memory that jobs need besides what they keep; known where a profile says how large single parameters are.

- A weight gradient is made before it is added to what earlier micro-batches gave: the largest parameter once more.
- A backward makes the gradient of a unit's input while it holds that of its output. Where these come into a stage or
  leave it, they are counted as messages.
- An optimizer's step has a few temporaries of a parameter's size, about as many as it has states: two for Adam.
- Where forward and backward are apart, fresh parameters wait where the forward is until it comes to use them.
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
class Places:
    """A plan's stages, which begin at these units, and who has which share of them."""

    starts: Ints
    stage: Ints
    share: Floats
    forward_device: Ints
    backward_device: Ints


def working_bytes(
    profile: Profile, num_devices: int, places: Places, cut_bytes: Floats, parameter_bytes: Floats
) -> Working:
    """What the devices need for the jobs of a plan: `cut_bytes` over units, `parameter_bytes` over stages."""
    largest, passing, waiting = np.zeros(num_devices), np.zeros(num_devices), np.zeros(num_devices)
    if profile.largest_parameter_bytes:
        sizes = np.array(profile.largest_parameter_bytes, dtype=np.float64)
        np.maximum.at(largest, places.backward_device, np.maximum.reduceat(sizes, places.starts)[places.stage])
        inside = _inside(cut_bytes, places.starts)[places.stage] * places.share
        np.maximum.at(passing, places.backward_device, inside)
        moved = places.forward_device != places.backward_device
        np.add.at(waiting, places.forward_device[moved], parameter_bytes[places.stage[moved]])
    return Working(largest + passing + waiting, largest * max(0.0, profile.optimizer_ratio - 1.0))


def _inside(cut_bytes: Floats, starts: Ints) -> Floats:
    """Over stages: the most that the gradients at both ends of a unit take, of those that no message brings or takes.

    >>> _inside(np.array([4.0, 6.0, 1.0, 9.0]), np.array([0, 3]))
    array([10.,  0.])
    """
    before = np.concatenate([[0.0], cut_bytes[:-1]])
    before[starts] = 0.0
    after = cut_bytes.copy()
    after[np.append(starts[1:], len(cut_bytes)) - 1] = 0.0
    return np.asarray(np.maximum.reduceat(before + after, starts))
