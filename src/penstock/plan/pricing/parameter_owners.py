"""Who holds which parameters: copies for the forward and the backward, and parameters that units share."""

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.profile import Profile


def ties_between(
    profile: Profile, starts: Ints, parameter_bytes: Floats
) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """Ties between segments; a tie inside one segment only makes its parameters count once."""
    sizes: list[float] = []
    groups: list[tuple[int, ...]] = []
    for tie in profile.ties:
        homes = [int(np.searchsorted(starts, unit, side="right")) - 1 for unit in tie.units]
        for segment in set(homes):
            parameter_bytes[segment] -= (homes.count(segment) - 1) * tie.parameter_bytes
        if len(set(homes)) > 1:
            sizes.append(float(tie.parameter_bytes))
            groups.append(tuple(sorted(set(homes))))
    return tuple(sizes), tuple(groups)


def held_bytes(
    num_devices: int,
    place_segment: Ints,
    forward_device: Ints,
    backward_device: Ints,
    parameter_bytes: Floats,
    tied_bytes: tuple[float, ...],
    tied_segments: tuple[tuple[int, ...], ...],
) -> tuple[Floats, Floats]:
    """Bytes of weights, and of weights that are trained, on every device; shared ones count once a device."""
    weight, trained = np.zeros(num_devices), np.zeros(num_devices)
    size = parameter_bytes[place_segment]
    np.add.at(trained, backward_device, size)
    np.add.at(weight, backward_device, size)
    at_backward = set(zip(place_segment.tolist(), backward_device.tolist(), strict=True))
    holders = set(at_backward)
    for segment, device in zip(place_segment.tolist(), forward_device.tolist(), strict=True):
        if (segment, device) not in holders:
            weight[device] += parameter_bytes[segment]
            holders.add((segment, device))
    for total, pairs in ((weight, holders), (trained, at_backward)):
        for tied, segments in zip(tied_bytes, tied_segments, strict=True):
            homes = [device for segment, device in pairs if segment in segments]
            for device in set(homes):
                total[device] -= (homes.count(device) - 1) * tied
    return weight, trained
