"""A measured iteration, and what it is predicted to take with other factors."""

import math
from dataclasses import dataclass

import msgspec

from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.profile import Overhead, Profile
from penstock.simulate import evaluate

MAX_SECONDS = 1e9


@dataclass(frozen=True)
class Observation:
    """A plan, its cluster, and the seconds that one iteration took.

    Args:
        plan: The plan that ran.
        cluster: The cluster of the plan.
        measured_s: Seconds of an iteration, such as the median of several.

    Raises:
        InputError: The seconds are not positive and finite.
    """

    plan: Plan
    cluster: Cluster
    measured_s: float

    def __post_init__(self) -> None:
        if not 0 < self.measured_s <= MAX_SECONDS:
            raise InputError(f"a measured iteration takes more than 0 seconds, not {self.measured_s:g}")

    def predicted_s(self, profile: Profile) -> float:
        """Return the simulated seconds of an iteration with a profile."""
        return evaluate(self.plan, profile, self.cluster, strict=False, within_memory=False).timeline.iteration_s

    def log_ratio(self, profile: Profile) -> float:
        """Return the logarithm of predicted over measured seconds."""
        return math.log(self.predicted_s(profile) / self.measured_s)


def scaled(profile: Profile, compute: float, byte_s: float) -> Profile:
    """Return a profile with longer or shorter layers, and with seconds for every byte that a device sends.

    Args:
        profile: The profile.
        compute: Multiplies the seconds of all layers.
        byte_s: Added to the seconds of every byte sent, on every device kind.
    """
    units = tuple(
        msgspec.structs.replace(
            unit,
            times=tuple(
                msgspec.structs.replace(
                    time,
                    forward_s=time.forward_s * compute,
                    input_grad_s=time.input_grad_s * compute,
                    weight_grad_s=time.weight_grad_s * compute,
                    step_s=time.step_s * compute,
                )
                for time in unit.times
            ),
        )
        for unit in profile.units
    )
    overheads = profile.overheads
    if byte_s:
        known = {item.kind: item for item in overheads}
        overheads = tuple(
            msgspec.structs.replace(known[kind], byte_s=known[kind].byte_s + byte_s)
            if kind in known
            else Overhead(kind=kind, job_s=0.0, message_s=0.0, byte_s=byte_s)
            for kind in dict.fromkeys((*profile.kinds, *known))
        )
    return msgspec.structs.replace(profile, units=units, overheads=overheads)
