"""Times and sizes as lines in the rows of a micro-batch: a base that is always paid, and so much for each row.

Measured once, a quantity is taken as proportional to the rows. Measured for several numbers of rows, the line is
the least-squares one among those with no negative base and no negative slope.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from penstock.arrays import Floats
from penstock.errors import InputError
from penstock.profile.types import Profile, Sizes, Times


class Line(msgspec.Struct, frozen=True):
    """`base + per_span * rows / span`. What was measured once, for `span` rows, comes back to the bit there."""

    base: float
    per_span: float
    span: float = 1.0

    @property
    def per_row(self) -> float:
        """What each row adds."""
        return self.per_span / self.span

    def at(self, rows: float) -> float:
        """The value for so many rows, which need not be whole.

        >>> Line(1.0, 0.5).at(4)
        3.0
        """
        return self.base + self.per_span * (rows / self.span)


@dataclass(frozen=True, eq=False)
class Lines:
    """One line for each unit."""

    base: Floats
    per_span: Floats
    span: Floats

    @cached_property
    def per_row(self) -> Floats:
        """What each row adds."""
        return self.per_span / self.span

    def at(self, rows: float) -> Floats:
        """The values for so many rows."""
        return self.base + self.per_span * (rows / self.span)


@dataclass(frozen=True, eq=False)
class SizeLines:
    """The sizes that depend on the rows."""

    cut: Lines
    saved: Lines
    pending: Lines


@dataclass(frozen=True, eq=False)
class UnitCosts:
    """What each unit costs for one number of rows on one kind of device; one array entry a unit."""

    forward_s: Floats
    input_grad_s: Floats
    weight_grad_s: Floats
    step_s: Floats
    cut_bytes: Floats
    saved_bytes: Floats
    pending_bytes: Floats
    parameter_bytes: Floats


@dataclass(frozen=True, eq=False)
class Model:
    """The costs of all units on one kind of device as lines in the rows."""

    kind: str
    forward: Lines
    input_grad: Lines
    weight_grad: Lines
    step: Lines
    sizes: SizeLines
    parameter_bytes: Floats

    def at(self, rows: float) -> UnitCosts:
        """The costs for so many rows, which need not be whole: a group of devices divides a micro-batch."""
        if not 0 < rows < np.inf:
            raise InputError(f"costs need a finite number of rows above zero, not {rows}")
        return UnitCosts(
            forward_s=self.forward.at(rows),
            input_grad_s=self.input_grad.at(rows),
            weight_grad_s=self.weight_grad.at(rows),
            step_s=self.step.at(rows),
            cut_bytes=self.sizes.cut.at(rows),
            saved_bytes=self.sizes.saved.at(rows),
            pending_bytes=self.sizes.pending.at(rows),
            parameter_bytes=self.parameter_bytes.copy(),
        )


def affine(points: Sequence[tuple[int, float]]) -> Line:
    """The line through measured `(rows, value)` points.

    >>> line = affine([(1, 3.0), (3, 7.0)])
    >>> line.base, line.per_row
    (1.0, 2.0)
    """
    if not points:
        raise InputError("a line needs at least one point")
    rows, values = np.array(points, dtype=np.float64).T
    if not (np.isfinite(rows).all() and np.isfinite(values).all() and (rows > 0).all() and (values >= 0).all()):
        raise InputError("the points of a line must be finite, with rows above zero and no negative value")
    lines = _through(rows, values[:, None])
    return Line(float(lines.base[0]), float(lines.per_span[0]), float(lines.span[0]))


def fit(profile: Profile, kind: str) -> Model:
    """The costs of a profile's units on a kind of device that was profiled."""
    if kind not in profile.kinds:
        known = ", ".join(profile.kinds)
        raise InputError(f"profile {profile.name!r} has no times for {kind!r}", hint=f"It was measured on: {known}.")
    # Kept with the profile, as its cached properties are: planners ask for it again and again.
    models: dict[str, Model] = profile.__dict__.setdefault("models", {})
    if kind not in models:
        models[kind] = _fit(profile, kind)
    return models[kind]


def _fit(profile: Profile, kind: str) -> Model:
    times = [[time for time in unit.times if time.kind == kind] for unit in profile.units]
    sizes = [list(unit.sizes) for unit in profile.units]
    return Model(
        kind=kind,
        forward=_lines(times, [[time.forward_s for time in unit] for unit in times]),
        input_grad=_lines(times, [[time.input_grad_s for time in unit] for unit in times]),
        weight_grad=_lines(times, [[time.weight_grad_s for time in unit] for unit in times]),
        step=_constant(np.array([sum(time.step_s for time in unit) / len(unit) for unit in times])),
        sizes=SizeLines(
            cut=_lines(sizes, [[size.cut_bytes for size in unit] for unit in sizes]),
            saved=_lines(sizes, [[size.saved_bytes for size in unit] for unit in sizes]),
            pending=_lines(sizes, [[_pending(size) for size in unit] for unit in sizes]),
        ),
        parameter_bytes=np.array([unit.parameter_bytes for unit in profile.units], dtype=np.float64),
    )


def _pending(size: Sizes) -> int:
    return size.saved_bytes if size.pending_bytes is None else size.pending_bytes


def _lines(entries: Sequence[Sequence[Times] | Sequence[Sizes]], values: Sequence[Sequence[float]]) -> Lines:
    """A line for each unit; units measured for the same rows are fitted together."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for unit, measured in enumerate(entries):
        alike.setdefault(tuple(entry.micro_batch_size for entry in measured), []).append(unit)
    base, per_span, span = np.empty((3, len(entries)))
    for rows, units in alike.items():
        lines = _through(np.array(rows, dtype=np.float64), np.array([values[unit] for unit in units]).T)
        base[units], per_span[units], span[units] = lines.base, lines.per_span, lines.span
    return Lines(base, per_span, span)


def _through(rows: Floats, values: Floats) -> Lines:
    """The best allowed line through each column of `values` (one row for each number of `rows`)."""
    values = values.astype(np.float64)
    num_units = values.shape[1]
    if len(rows) == 1:
        return Lines(np.zeros(num_units), values[0], np.full(num_units, rows[0]))
    proportional = rows @ values / (rows @ rows)
    mean_rows, mean_values = rows.mean(), values.mean(axis=0)
    apart = rows - mean_rows
    if not apart.any():
        return Lines(np.zeros(num_units), proportional, np.ones(num_units))
    slope = apart @ values / (apart @ apart)
    base = mean_values - slope * mean_rows
    # Only one of the two can be negative, as no value is; the best allowed line then lies on that limit.
    rising = slope >= 0
    per_row = np.where(rising, np.where(base < 0, proportional, slope), 0.0)
    base = np.where(rising, np.maximum(base, 0.0), mean_values)
    return Lines(base, per_row, np.ones(num_units))


def _constant(values: Floats) -> Lines:
    return Lines(values, np.zeros_like(values), np.ones_like(values))
