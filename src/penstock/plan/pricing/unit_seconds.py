"""Seconds of a profile's units on a cluster's devices."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from penstock.arrays import Floats
from penstock.cluster import Cluster, Device
from penstock.errors import InputError
from penstock.names import ask_names, near_names
from penstock.profile import (
    KINDS,
    UNNAMED_KIND,
    CostModel,
    Overhead,
    Profile,
    find_kind,
    fit,
    group_size,
    match_kind,
    relative_speed,
)

Part = Literal["forward_s", "input_grad_s", "weight_grad_s", "step_s"]

ROUNDING = 1e-9

MAX_SUMS = 10_000
"""How many running sums are kept at once: a long search tries many shares."""


def check_kinds(profile: Profile, devices: Iterable[Device]) -> None:
    """Check that the speed of every device is known.

    A kind is known if the profile has times for it, or if it has a data sheet. A device of any other kind, such as a
    misspelled one, needs a speed of its own. A profile that does not name the device that it was measured on holds for
    every kind.

    Raises:
        InputError: The kind of a device is unknown, and its speed is not specified.
    """
    if profile.kinds == (UNNAMED_KIND,):
        return
    sizes = {group_size(kind) for kind in profile.kinds}
    for device in devices:
        if group_size(device.kind) not in sizes:
            raise InputError(
                f"{device.name} is {_gpus(group_size(device.kind))}, but the profile {profile.name!r} is for devices "
                f"of {_gpus(min(sizes))}",
                hint="Compute the profile with --tensor-parallel, or measure it, for the devices of the cluster.",
            )
    for kind in dict.fromkeys(device.kind for device in devices if device.speed == 1.0):
        if match_kind(kind, profile.kinds) is not None or find_kind(kind) is not None:
            continue
        known = tuple(dict.fromkeys((*profile.kinds, *KINDS)))
        question = ask_names(near_names(kind, known, most=2, cutoff=0.5))
        raise InputError(
            f"the speed of device kind {kind!r} is unknown: the profile {profile.name!r} has no times for it, and it "
            "has no data sheet",
            hint=f"{question} Known kinds: {', '.join(known)}. For another kind, specify the speed of its "
            f"devices in the cluster file, relative to {profile.kinds[0]}; for equal speed, name that kind.".strip(),
        )


def _gpus(count: int) -> str:
    return f"a group of {count} GPUs" if count > 1 else "one GPU"


class UnitClock:
    """Seconds of units on devices, as running sums, computed once for every kind, speed and share.

    A device of a profiled kind takes the measured times, divided by its speed. Times of another kind are scaled from
    the first profiled kind for which both data sheets are known; without one, the kind is assumed to be as fast as
    the first profiled kind, which `check_kinds` refuses for unknown kinds. `notes` lists these assumptions.
    """

    def __init__(self, profile: Profile, cluster: Cluster, micro_batch_size: int) -> None:
        self._profile = profile
        self._cluster = cluster
        self._rows = micro_batch_size
        self._models: dict[str, tuple[CostModel, float]] = {}
        self._sums: dict[tuple[str, float, float, Part], Floats] = {}
        self._notes: dict[str, str] = {}

    def is_for(self, profile: Profile, cluster: Cluster, micro_batch_size: int) -> bool:
        """Whether it was made for this profile, cluster and micro-batch size."""
        return self._profile is profile and self._cluster is cluster and self._rows == micro_batch_size

    def notes(self, devices: Iterable[int]) -> tuple[str, ...]:
        """The assumptions about these devices, each once, in the order of the devices."""
        kinds = dict.fromkeys(self._cluster.devices[device].kind for device in devices)
        for kind in kinds:
            self._model(kind)
        return tuple(self._notes[kind] for kind in kinds if kind in self._notes)

    def prefix(self, device: int, share: float, part: Part) -> Floats:
        """Running sums over the units: the seconds of units a up to b are sums[b] - sums[a]."""
        found = self._cluster.devices[device]
        key = (found.kind, found.speed, share, part)
        if key not in self._sums:
            if len(self._sums) >= MAX_SUMS:
                self._sums.clear()
            model, speed = self._model(found.kind)
            values = getattr(model.at(self._rows * share), part) / (speed * found.speed)
            self._sums[key] = np.concatenate([[0.0], np.cumsum(values)])
        return self._sums[key]

    def corners(self, device: int) -> tuple[float, ...]:
        """The shares below 1 at which seconds on a device can change their slope, ascending."""
        model, _ = self._model(self._cluster.devices[device].kind)
        return tuple(rows / self._rows for rows in model.forward.measured_rows if rows < self._rows)

    def extrapolation(self, device: int, share: float) -> str | None:
        """A note about the times of a device with a share of the rows, if so few or many were not measured.

        With one measured size, times of smaller shares are proportional, which every profile of one size implies.
        """
        model, _ = self._model(self._cluster.devices[device].kind)
        measured, rows = model.forward.measured_rows, self._rows * share
        if measured[0] * (1 - ROUNDING) <= rows <= measured[-1] * (1 + ROUNDING):
            return None
        if len(measured) == 1:
            if measured[0] == self._rows:
                return None
            return f"times are those of {measured[0]:g} rows, scaled to micro-batches of {self._rows}"
        return f"times of {rows:g} rows are extrapolated: the profile has {measured[0]:g} to {measured[-1]:g}"

    def _model(self, kind: str) -> tuple[CostModel, float]:
        if kind not in self._models:
            self._models[kind] = self._find(kind)
        return self._models[kind]

    def _find(self, kind: str) -> tuple[CostModel, float]:
        kinds = self._profile.kinds
        profiled = match_kind(kind, kinds)
        if profiled is not None:
            return fit(self._profile, profiled), 1.0
        for known in kinds:
            speed = relative_speed(kind, known)
            if speed is not None:
                self._notes[kind] = f"{kind} was not profiled: assumed {speed:.2f} x as fast as {known} (data sheets)"
                return fit(self._profile, known), speed
        self._notes[kind] = (
            f"the profile has no times for {kind}, and no data sheets relate it to {', '.join(kinds)}: "
            f"assumed to be as fast as {kinds[0]}"
        )
        return fit(self._profile, kinds[0]), 1.0

    @property
    def has_overheads(self) -> bool:
        """Whether the profile has overheads for any device kind."""
        return bool(self._profile.overheads)

    def overhead(self, device: int) -> Overhead:
        """The overheads of a device; zero if they were not measured for its kind."""
        found = self._cluster.devices[device]
        kind = match_kind(found.kind, (item.kind for item in self._profile.overheads))
        spent = next((item for item in self._profile.overheads if item.kind == kind), None)
        if spent is None:
            return Overhead(kind=found.kind, job_s=0.0, message_s=0.0, byte_s=0.0)
        return spent.at_speed(found.speed)

    def work(self, device: int) -> Floats:
        """Running sums of F, I and W together for whole micro-batches."""
        return (
            self.prefix(device, 1.0, "forward_s")
            + self.prefix(device, 1.0, "input_grad_s")
            + self.prefix(device, 1.0, "weight_grad_s")
        )
