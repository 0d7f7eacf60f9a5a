"""Times and sizes as affine functions of the rows of a micro-batch: a constant base plus a cost per row.

A quantity with one measurement is proportional to the rows. With measurements for several micro-batch sizes, the line
is the least-squares fit among lines with nonnegative base and slope. In a profile that has measurements for its own
micro-batch size, lines go through those, and only their slope is fitted: at that size, costs are what was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats
from penstock.errors import InputError
from penstock.profile.types import Profile, Sizes, Times


class Line(msgspec.Struct, frozen=True):
    """`base + per_span * rows / span`. A single measurement for `span` rows is reproduced to the bit."""

    base: float
    per_span: float
    span: float = 1.0

    @property
    def per_row(self) -> float:
        """Cost of each additional row."""
        return self.per_span / self.span

    def at(self, rows: float) -> float:
        """Evaluate the line for a number of rows, which may be fractional.

        >>> Line(1.0, 0.5).at(4)
        3.0
        """
        return self.base + self.per_span * (rows / self.span)


@dataclass(frozen=True, eq=False)
class Lines:
    """One line for each layer."""

    base: Floats
    per_span: Floats
    span: Floats

    @cached_property
    def per_row(self) -> Floats:
        """Cost of each additional row."""
        return self.per_span / self.span

    def at(self, rows: float) -> Floats:
        """Evaluate all lines for a number of rows."""
        return self.base + self.per_span * (rows / self.span)


@dataclass(frozen=True, eq=False)
class SizeLines:
    """The sizes that depend on the number of rows."""

    cut: Lines
    saved: Lines
    pending: Lines


@dataclass(frozen=True, eq=False)
class UnitCosts:
    """Costs of all layers for one number of rows on one device kind. Each array has one entry per layer."""

    forward_s: Floats
    input_grad_s: Floats
    weight_grad_s: Floats
    step_s: Floats
    cut_bytes: Floats
    saved_bytes: Floats
    pending_bytes: Floats
    parameter_bytes: Floats
    trained_bytes: Floats
    """Trained parameters."""
    grad_bytes: Floats
    """Gradients of the tensors alive across the cut after each layer: none in front of the first trained parameter, if
    the model has frozen ones."""


@dataclass(frozen=True, eq=False)
class CostModel:
    """Costs of all layers on one device kind, as affine functions of the rows."""

    kind: str
    forward: Lines
    input_grad: Lines
    weight_grad: Lines
    step: Lines
    sizes: SizeLines
    parameter_bytes: Floats
    trained_bytes: Floats

    def at(self, rows: float) -> UnitCosts:
        """Evaluate the costs for a number of rows.

        Args:
            rows: Rows of a micro-batch. May be fractional: the replicas of a stage divide a micro-batch.

        Raises:
            InputError: `rows` is not positive and finite.
        """
        if not 0 < rows < np.inf:
            raise InputError(f"the number of rows must be positive and finite, not {rows}")
        cut_bytes = self.sizes.cut.at(rows)
        return UnitCosts(
            forward_s=self.forward.at(rows),
            input_grad_s=self.input_grad.at(rows),
            weight_grad_s=self.weight_grad.at(rows),
            step_s=self.step.at(rows),
            cut_bytes=cut_bytes,
            saved_bytes=self.sizes.saved.at(rows),
            pending_bytes=self.sizes.pending.at(rows),
            parameter_bytes=self.parameter_bytes.copy(),
            trained_bytes=self.trained_bytes.copy(),
            grad_bytes=np.where(self._has_gradients, cut_bytes, 0.0),
        )

    @cached_property
    def _has_gradients(self) -> npt.NDArray[np.bool_]:
        """Whether the output of each layer has gradients. Without frozen parameters, every output is taken to."""
        has_frozen = bool((self.trained_bytes < self.parameter_bytes).any())
        return np.asarray((np.cumsum(self.trained_bytes) > 0) | (not has_frozen))


def affine(points: Sequence[tuple[int, float]]) -> Line:
    """Fit a line to measurements.

    Args:
        points: `(rows, value)` of each measurement.

    Raises:
        InputError: There are no points, or a value is negative or not finite.

    Example:
        >>> line = affine([(1, 3.0), (3, 7.0)])
        >>> line.base, line.per_row
        (1.0, 2.0)
    """
    if not points:
        raise InputError("a line needs at least one point")
    rows, values = np.array(points, dtype=np.float64).T
    if not (np.isfinite(rows).all() and np.isfinite(values).all() and (rows > 0).all() and (values >= 0).all()):
        raise InputError("points must be finite, with positive rows and nonnegative values")
    lines = _through(rows, values[:, None])
    return Line(float(lines.base[0]), float(lines.per_span[0]), float(lines.span[0]))


def fit(profile: Profile, kind: str) -> CostModel:
    """Fit the costs of a profile's layers on one of its device kinds.

    Raises:
        InputError: The profile has no times for this kind.
    """
    if kind not in profile.kinds:
        known = ", ".join(profile.kinds)
        raise InputError(f"profile {profile.name!r} has no times for {kind!r}", hint=f"It was measured on: {known}.")
    # Cached in the profile, as its cached properties are: planners call this often.
    models: dict[str, CostModel] = profile.__dict__.setdefault("models", {})
    if kind not in models:
        models[kind] = _fit(profile, kind)
    return models[kind]


def _fit(profile: Profile, kind: str) -> CostModel:
    times = [[time for time in unit.times if time.kind == kind] for unit in profile.units]
    sizes = [list(unit.sizes) for unit in profile.units]
    anchor = profile.micro_batch_size
    return CostModel(
        kind=kind,
        forward=_lines(times, [[time.forward_s for time in unit] for unit in times], anchor),
        input_grad=_lines(times, [[time.input_grad_s for time in unit] for unit in times], anchor),
        weight_grad=_lines(times, [[time.weight_grad_s for time in unit] for unit in times], anchor),
        step=_constant(np.array([sum(time.step_s for time in unit) / len(unit) for unit in times])),
        sizes=SizeLines(
            cut=_lines(sizes, [[size.cut_bytes for size in unit] for unit in sizes], anchor),
            saved=_lines(sizes, [[size.saved_bytes for size in unit] for unit in sizes], anchor),
            pending=_lines(sizes, [[_pending(size) for size in unit] for unit in sizes], anchor),
        ),
        parameter_bytes=np.array([unit.parameter_bytes for unit in profile.units], dtype=np.float64),
        trained_bytes=np.array([unit.trained_bytes for unit in profile.units], dtype=np.float64),
    )


def _pending(size: Sizes) -> int:
    return size.saved_bytes if size.pending_bytes is None else size.pending_bytes


def _lines(
    entries: Sequence[Sequence[Times] | Sequence[Sizes]], values: Sequence[Sequence[float]], anchor: int
) -> Lines:
    """Fit a line for each layer; layers with the same micro-batch sizes are fitted together.

    Lines go through the values for `anchor` rows, where there are some.
    """
    units_by_rows: dict[tuple[int, ...], list[int]] = {}
    for unit, measurements in enumerate(entries):
        units_by_rows.setdefault(tuple(entry.micro_batch_size for entry in measurements), []).append(unit)
    base, per_span, span = np.empty((3, len(entries)))
    for rows, units in units_by_rows.items():
        columns = np.array([values[unit] for unit in units]).T
        if len(rows) > 2 and anchor in rows:
            lines = _anchored(np.array(rows, dtype=np.float64), columns, rows.index(anchor))
        else:
            lines = _through(np.array(rows, dtype=np.float64), columns)
        base[units], per_span[units], span[units] = lines.base, lines.per_span, lines.span
    return Lines(base, per_span, span)


def _through(rows: Floats, values: Floats) -> Lines:
    """Fit a line with nonnegative base and slope to each column of `values`, which has one row per entry of `rows`."""
    values = values.astype(np.float64)
    num_units = values.shape[1]
    if len(rows) == 1:
        return Lines(np.zeros(num_units), values[0], np.full(num_units, rows[0]))
    # Not with @: BLAS rounds differently on other processors, and plans should be the same everywhere.
    proportional = (rows[:, None] * values).sum(axis=0) / (rows * rows).sum()
    mean_rows, mean_values = rows.mean(), values.mean(axis=0)
    offsets = rows - mean_rows
    if not offsets.any():
        return Lines(np.zeros(num_units), proportional, np.ones(num_units))
    slope = (offsets[:, None] * values).sum(axis=0) / (offsets * offsets).sum()
    base = mean_values - slope * mean_rows
    # Values are nonnegative, so at most one of the two is negative; the best allowed line then lies on that limit.
    rising = slope >= 0
    per_row = np.where(rising, np.where(base < 0, proportional, slope), 0.0)
    base = np.where(rising, np.maximum(base, 0.0), mean_values)
    return Lines(base, per_row, np.ones(num_units))


def _anchored(rows: Floats, values: Floats, index: int) -> Lines:
    """Fit lines with nonnegative base and slope through one entry of each column."""
    values = values.astype(np.float64)
    at, fixed = rows[index], values[index]
    offsets = rows - at
    slope = (offsets[:, None] * (values - fixed)).sum(axis=0) / (offsets * offsets).sum()
    slope = np.clip(slope, 0.0, fixed / at)
    base = np.maximum(fixed - slope * at, 0.0)
    # The line is base + (fixed - base) * rows / at.
    return Lines(base, fixed - base, np.full_like(fixed, at))


def _constant(values: Floats) -> Lines:
    return Lines(values, np.zeros_like(values), np.ones_like(values))
