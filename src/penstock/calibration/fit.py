"""Fitting of a profile's factors to measured iterations: as few as the measurements support."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.arrays import Floats
from penstock.calibration.observation import Observation, scaled
from penstock.errors import InputError
from penstock.profile import Profile, Spread

COMPUTE, BYTES = "compute", "seconds per byte"
UNIT_BYTE_S = 1e-11
"""Seconds for every byte are fitted in this unit, so that both factors are of similar size."""
ROUNDS = 25
STEP = 1e-4
TOLERANCE = 1e-9
SMALL_GAIN = 1e-3
"""A round that lowers the sum of squares by less than this part is the last one."""
EXACT = 1e-6
"""Relative errors up to this are taken as none."""
MAX_CHANGE = 1.0
MIN_COMPUTE, MAX_COMPUTE = 1e-3, 1e3
LEAST_FOR_TWO = 3
WORTHWHILE = 0.8
"""A second factor is fitted if it lowers the error of left-out measurements to this part or less."""


@dataclass(frozen=True)
class Factor:
    """A fitted factor.

    Attributes:
        name: "compute" (multiplies the seconds of all layers) or "seconds per byte" (of every message sent).
        value: Its value.
        error: Its standard error; None if there are not more measurements than factors.
    """

    name: str
    value: float
    error: float | None


@dataclass(frozen=True)
class Calibration:
    """A profile that is adapted to measurements.

    Attributes:
        profile: The adapted profile; its assumptions state the factors and what they were fitted to.
        factors: The factors.
        before: Relative errors of the predictions with the old profile.
        after: With the new one.
        left_out: Relative error of each measurement if the factors are fitted to the others; empty for one measurement.
    """

    profile: Profile
    factors: tuple[Factor, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    left_out: tuple[float, ...]


def calibrate(profile: Profile, observations: Sequence[Observation]) -> Calibration:
    """Adapt a profile to measured iterations.

    One measurement supports one factor, of the seconds of all layers. With three or more, seconds for every byte sent
    are fitted too if that predicts left-out measurements better.

    Args:
        profile: The profile that the plans were made for.
        observations: The measured iterations.

    Raises:
        InputError: There is no measurement, or no factor from 0.001 to 1,000 explains them.
    """
    if not observations:
        raise InputError("calibration needs at least one measured iteration")
    before = _errors(profile, observations)
    values = _fit(profile, observations, (COMPUTE,))
    left_out = _left_out(profile, observations, (COMPUTE,))
    names: tuple[str, ...] = (COMPUTE,)
    if len(observations) >= LEAST_FOR_TWO and np.abs(left_out).mean() > EXACT:
        two = _left_out(profile, observations, (COMPUTE, BYTES))
        if np.abs(two).mean() <= WORTHWHILE * np.abs(left_out).mean():
            names, left_out = (COMPUTE, BYTES), two
            values = _fit(profile, observations, names)
    adapted = _scaled(profile, values)
    errors = _standard_errors(profile, observations, values)
    sizes = (values[0], *(value * UNIT_BYTE_S for value in values[1:]))
    scales = (1.0, *(UNIT_BYTE_S for _ in values[1:]))
    factors = tuple(
        Factor(name, float(value), None if error is None else float(error * scale))
        for name, value, error, scale in zip(names, sizes, errors, scales, strict=True)
    )
    after = _errors(adapted, observations)
    note = _note(profile, observations, factors, after)
    adapted = msgspec.structs.replace(
        adapted, assumptions=(*profile.assumptions, note), spread=_calibrated_spread(profile, left_out)
    )
    return Calibration(adapted, factors, before, after, tuple(left_out))


def _calibrated_spread(profile: Profile, left_out: Sequence[float]) -> Spread:
    """The factors contain the mean excess; with left-out measurements, their error is that of all times."""
    spread = profile.known_spread
    error = float(np.sqrt(np.mean(np.square(left_out)))) if len(left_out) else spread.iteration
    return msgspec.structs.replace(
        spread,
        reason=f"{spread.reason} Calibrated: no excess.",
        excess=0.0,
        excess_virtual=0.0,
        excess_remote=0.0,
        iteration=min(error, spread.iteration),
    )


def _note(
    profile: Profile, observations: Sequence[Observation], factors: Sequence[Factor], after: Sequence[float]
) -> str:
    shown = ", ".join(f"{factor.name} {factor.value:.4g}" for factor in factors)
    worst = max(map(abs, after))
    count = "one measured iteration" if len(observations) == 1 else f"{len(observations)} measured iterations"
    return f"Calibrated from profile {profile.digest} to {count}: {shown}; largest remaining error {worst:.1%}."


def _errors(profile: Profile, observations: Sequence[Observation]) -> tuple[float, ...]:
    return tuple(math.expm1(item.log_ratio(profile)) for item in observations)


def _scaled(profile: Profile, values: Sequence[float]) -> Profile:
    return scaled(profile, values[0], values[1] * UNIT_BYTE_S if len(values) > 1 else 0.0)


def _logs(profile: Profile, observations: Sequence[Observation], values: Sequence[float]) -> Floats:
    adapted = _scaled(profile, values)
    return np.array([item.log_ratio(adapted) for item in observations])


def _slopes(profile: Profile, observations: Sequence[Observation], values: Sequence[float], now: Floats) -> Floats:
    columns = []
    for index, value in enumerate(values):
        step = STEP * max(value, 1.0 if index else 0.0)
        moved = [*values[:index], value + step, *values[index + 1 :]]
        columns.append((_logs(profile, observations, moved) - now) / step)
    return np.stack(columns, axis=1)


def _fit(profile: Profile, observations: Sequence[Observation], names: Sequence[str]) -> tuple[float, ...]:
    """Least squares of the logarithms, by Gauss and Newton with halved steps. Seconds for bytes are not negative."""
    values = (1.0, 0.0)[: len(names)]
    now = _logs(profile, observations, values)
    for _ in range(ROUNDS):
        slopes = _slopes(profile, observations, values, now)
        change, *_ = np.linalg.lstsq(slopes, -now, rcond=None)
        size, found = 1.0, None
        while size > TOLERANCE and found is None:
            first = values[0] * math.exp(float(np.clip(size * change[0] / values[0], -MAX_CHANGE, MAX_CHANGE)))
            moved = (
                first,
                *(max(0.0, value + size * float(by)) for value, by in zip(values[1:], change[1:], strict=True)),
            )
            logs = _logs(profile, observations, moved)
            if float((logs**2).sum()) < float((now**2).sum()):
                found = moved, logs
            size /= 2
        if found is None:
            break
        gained = float((now**2).sum()) - float((found[1] ** 2).sum())
        is_last = gained < SMALL_GAIN * float((now**2).sum()) or float(np.abs(found[1]).max()) < EXACT
        values, now = found
        if not MIN_COMPUTE <= values[0] <= MAX_COMPUTE:
            raise InputError(
                f"the measured iterations differ from the prediction by more than a factor of {MAX_COMPUTE:,.0f}",
                hint="Check the unit of the seconds, and that the plan, the profile and the cluster belong together.",
            )
        if is_last:
            break
    return values


def _left_out(profile: Profile, observations: Sequence[Observation], names: Sequence[str]) -> list[float]:
    if len(observations) < 2:
        return []
    errors = []
    for index, item in enumerate(observations):
        others = [*observations[:index], *observations[index + 1 :]]
        adapted = _scaled(profile, _fit(profile, others, names))
        errors.append(math.expm1(item.log_ratio(adapted)))
    return errors


def _standard_errors(
    profile: Profile, observations: Sequence[Observation], values: Sequence[float]
) -> list[float | None]:
    free = len(observations) - len(values)
    if free < 1:
        return [None] * len(values)
    now = _logs(profile, observations, values)
    slopes = _slopes(profile, observations, values, now)
    variance = float((now**2).sum()) / free * np.linalg.pinv(slopes.T @ slopes)
    return [float(math.sqrt(max(0.0, entry))) for entry in np.diag(variance)]
