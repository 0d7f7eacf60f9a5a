"""The costs of layers over the rows of a micro-batch: what was measured, and lines between and beyond.

At a measured number of rows a curve has the measured value. Between two of them it is a straight line, so it rises or
falls all the way. Beyond the largest it continues with the slope that fits all measurements best; below the smallest
likewise. Neither part falls with the rows, or starts below zero. A quantity with one measurement is proportional.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.arrays import Floats, Ints
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
class _Group:
    """Layers with measurements for the same rows."""

    layers: Ints
    rows: tuple[float, ...]
    """Ascending."""
    values: Floats
    """[rows, layer]"""
    below: Floats
    above: Floats
    """Slopes beyond the measurements, for each layer."""

    def at(self, rows: float) -> Floats:
        known, values = self.rows, self.values
        if len(known) == 1:
            # The measured value comes back to the bit.
            return np.asarray(values[0] * (rows / known[0]))
        right = bisect_left(known, rows)
        if right < len(known) and known[right] == rows:
            return np.asarray(values[right])
        if right == 0:
            return np.asarray(values[0] - self.below * (known[0] - rows))
        if right == len(known):
            return np.asarray(values[-1] + self.above * (rows - known[-1]))
        part = (rows - known[right - 1]) / (known[right] - known[right - 1])
        return np.asarray(values[right - 1] * (1 - part) + values[right] * part)


@dataclass(frozen=True, eq=False)
class Curves:
    """One curve for each layer."""

    num_layers: int
    groups: tuple[_Group, ...]

    def at(self, rows: float) -> Floats:
        """Evaluate all curves for a number of rows, which may be fractional."""
        found = np.empty(self.num_layers)
        for group in self.groups:
            found[group.layers] = group.at(rows)
        return found

    @cached_property
    def measured_rows(self) -> tuple[float, ...]:
        """The measured rows of all layers, ascending: the only places at which a curve can have a corner."""
        return tuple(sorted({rows for group in self.groups for rows in group.rows}))


@dataclass(frozen=True, eq=False)
class SizeCurves:
    """The sizes that depend on the number of rows."""

    cut: Curves
    saved: Curves
    pending: Curves
    recomputed: Curves


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
    recomputed_bytes: Floats
    """Of the largest checkpointed part of each layer."""
    parameter_bytes: Floats
    trained_bytes: Floats
    """Trained parameters."""
    grad_bytes: Floats
    """Gradients of the tensors alive across the cut after each layer: none in front of the first trained parameter, if
    the model has frozen ones."""


@dataclass(frozen=True, eq=False)
class CostModel:
    """Costs of all layers on one device kind over the rows. Optimizer steps do not depend on them."""

    kind: str
    forward: Curves
    input_grad: Curves
    weight_grad: Curves
    step_s: Floats
    sizes: SizeCurves
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
            step_s=self.step_s.copy(),
            cut_bytes=cut_bytes,
            saved_bytes=self.sizes.saved.at(rows),
            pending_bytes=self.sizes.pending.at(rows),
            recomputed_bytes=self.sizes.recomputed.at(rows),
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
    """Fit a line to measurements: least squares among lines with nonnegative base and slope.

    One measurement gives a proportional line.

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
    if len(rows) == 1:
        return Line(0.0, float(values[0]), float(rows[0]))
    proportional = float((rows * values).sum() / (rows * rows).sum())
    offsets = rows - rows.mean()
    if not offsets.any():
        return Line(0.0, proportional)
    slope = float((offsets * values).sum() / (offsets * offsets).sum())
    base = float(values.mean() - slope * rows.mean())
    # Values are nonnegative, so at most one of the two is negative; the best allowed line then lies on that limit.
    if slope < 0:
        return Line(float(values.mean()), 0.0)
    return Line(0.0, proportional) if base < 0 else Line(base, slope)


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
    rows_of_times, rows_of_sizes = _rows(times), _rows(sizes)
    return CostModel(
        kind=kind,
        forward=_fit_curves(rows_of_times, [[time.forward_s for time in unit] for unit in times]),
        input_grad=_fit_curves(rows_of_times, [[time.input_grad_s for time in unit] for unit in times]),
        weight_grad=_fit_curves(rows_of_times, [[time.weight_grad_s for time in unit] for unit in times]),
        step_s=np.array([sum(time.step_s for time in unit) / len(unit) for unit in times]),
        sizes=SizeCurves(
            cut=_fit_curves(rows_of_sizes, [[size.cut_bytes for size in unit] for unit in sizes]),
            saved=_fit_curves(rows_of_sizes, [[size.saved_bytes for size in unit] for unit in sizes]),
            pending=_fit_curves(rows_of_sizes, [[_pending(size) for size in unit] for unit in sizes]),
            recomputed=_fit_curves(
                rows_of_sizes, [unit.recomputed_bytes or (0,) * len(unit.sizes) for unit in profile.units]
            ),
        ),
        parameter_bytes=np.array([unit.parameter_bytes for unit in profile.units], dtype=np.float64),
        trained_bytes=np.array([unit.trained_bytes for unit in profile.units], dtype=np.float64),
    )


def _rows(entries: Sequence[Sequence[Times] | Sequence[Sizes]]) -> list[list[int]]:
    return [[entry.micro_batch_size for entry in unit] for unit in entries]


def _pending(size: Sizes) -> int:
    return size.saved_bytes if size.pending_bytes is None else size.pending_bytes


def _fit_curves(rows: Sequence[Sequence[int]], values: Sequence[Sequence[float]]) -> Curves:
    """The curves through measurements.

    Args:
        rows: For each layer the measured rows, each once.
        values: For each layer the values.
    """
    layers_of: dict[tuple[int, ...], list[int]] = {}
    for layer, measured in enumerate(rows):
        layers_of.setdefault(tuple(measured), []).append(layer)
    groups = []
    for measured, layers in layers_of.items():
        order = np.argsort(measured, kind="stable")
        known = np.array(measured, dtype=np.float64)[order]
        table = np.array([values[layer] for layer in layers], dtype=np.float64).T[order]
        groups.append(
            _Group(
                np.array(layers, dtype=np.int64), tuple(known.tolist()), table, _slope(known, table, 0),
                _slope(known, table, len(known) - 1),
            )
        )  # fmt: skip
    return Curves(len(rows), tuple(groups))


def _slope(rows: Floats, values: Floats, index: int) -> Floats:
    """The slopes that fit best through one entry of each column, such that lines do not fall or start below zero."""
    offsets = rows - rows[index]
    if not offsets.any():
        return np.asarray(values[index] / rows[index])
    # Not with @: BLAS rounds differently on other processors, and plans should be the same everywhere.
    slope = (offsets[:, None] * (values - values[index])).sum(axis=0) / (offsets * offsets).sum()
    return np.asarray(np.clip(slope, 0.0, values[index] / rows[index]))
