"""Parameters on every device: copies for the forward and the backward, and tied parameters."""

from typing import NamedTuple

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.profile import Profile


class Ties(NamedTuple):
    """Ties between stages: the size and the stages of each."""

    num_bytes: tuple[float, ...]
    stages: tuple[tuple[int, ...], ...]


def ties_between(profile: Profile, starts: Ints, parameter_bytes: Floats, *, only_trained: bool) -> Ties:
    """Ties between stages; a tie inside one stage only makes its parameters count once in `parameter_bytes`."""
    sizes: list[float] = []
    groups: list[tuple[int, ...]] = []
    for tie in profile.ties:
        if only_trained and not tie.is_trained:
            continue
        homes = [int(np.searchsorted(starts, unit, side="right")) - 1 for unit in tie.units]
        for stage in set(homes):
            parameter_bytes[stage] -= (homes.count(stage) - 1) * tie.parameter_bytes
        if len(set(homes)) > 1:
            sizes.append(float(tie.parameter_bytes))
            groups.append(tuple(sorted(set(homes))))
    return Ties(tuple(sizes), tuple(groups))


def held_bytes(num_devices: int, holders: set[tuple[int, int]], parameter_bytes: Floats, ties: Ties) -> Floats:
    """Bytes of parameters on every device; those that stages share count once per device.

    Args:
        num_devices: The number of devices.
        holders: Pairs of a stage and a device that holds its parameters.
        parameter_bytes: Over stages.
        ties: The ties between stages.
    """
    held = np.zeros(num_devices)
    for stage, device in holders:
        held[device] += parameter_bytes[stage]
    for tied, stages in zip(ties.num_bytes, ties.stages, strict=True):
        homes = [device for stage, device in holders if stage in stages]
        for device in set(homes):
            held[device] -= (homes.count(device) - 1) * tied
    return held
