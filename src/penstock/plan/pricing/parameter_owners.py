"""Parameters on every device: copies for the forward and the backward, and tied parameters."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.profile import Profile


def ties_between(
    profile: Profile, starts: Ints, parameter_bytes: Floats
) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """Ties between stages; a tie inside one stage only makes its parameters count once."""
    sizes: list[float] = []
    groups: list[tuple[int, ...]] = []
    for tie in profile.ties:
        homes = [int(np.searchsorted(starts, unit, side="right")) - 1 for unit in tie.units]
        for stage in set(homes):
            parameter_bytes[stage] -= (homes.count(stage) - 1) * tie.parameter_bytes
        if len(set(homes)) > 1:
            sizes.append(float(tie.parameter_bytes))
            groups.append(tuple(sorted(set(homes))))
    return tuple(sizes), tuple(groups)


def held_bytes(
    num_devices: int,
    replica_stage: Ints,
    forward_device: Ints,
    backward_device: Ints,
    parameter_bytes: Floats,
    tied_bytes: tuple[float, ...],
    tied_stages: tuple[tuple[int, ...], ...],
) -> tuple[Floats, Floats]:
    """Bytes of weights, and of weights that are trained, on every device; shared ones count once per device."""
    weight, trained = np.zeros(num_devices), np.zeros(num_devices)
    size = parameter_bytes[replica_stage]
    np.add.at(trained, backward_device, size)
    np.add.at(weight, backward_device, size)
    at_backward = set(zip(replica_stage.tolist(), backward_device.tolist(), strict=True))
    holders = set(at_backward)
    for stage, device in zip(replica_stage.tolist(), forward_device.tolist(), strict=True):
        if (stage, device) not in holders:
            weight[device] += parameter_bytes[stage]
            holders.add((stage, device))
    for total, pairs in ((weight, holders), (trained, at_backward)):
        for tied, stages in zip(tied_bytes, tied_stages, strict=True):
            homes = [device for stage, device in pairs if stage in stages]
            for device in set(homes):
                total[device] -= (homes.count(device) - 1) * tied
    return weight, trained
