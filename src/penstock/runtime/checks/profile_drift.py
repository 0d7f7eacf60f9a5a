"""Compare the trained model with the profiled one, and warn once if sizes differ.

Training is correct in that case, because messages carry their own metadata. But predicted times, and the proof that
memory suffices, hold for the profiled model only.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from penstock.errors import ProfileWarning
from penstock.model import Block, bytes_of
from penstock.profile import Profile, fit
from penstock.runtime.executor import Iteration
from penstock.runtime.layout import StageView
from penstock.runtime.tensors import PackedPayload, Rows
from penstock.units import show_bytes, show_count

TOLERANCE = 0.02
"""Relative difference that is ignored. A profile of one micro-batch size misses bytes that do not depend on rows."""


class ProfileDrift:
    """Compares sizes on one rank. Rank 0 reports differences of the batch, which all ranks have."""

    def __init__(
        self, profile: Profile | None, blocks: Sequence[Block], stages: Sequence[StageView], rank: int
    ) -> None:
        self._profile = profile
        self._stages = stages
        self._rank = rank
        self._difference = "" if profile is None else _compare_parameters(profile, blocks)
        self._is_done = profile is None
        self._checked: set[Any] = set()
        """Signatures of the batches checked so far. Equal signatures have equal sizes."""

    def begin(self, iteration: Iteration) -> None:
        """Start a training iteration: check its inputs, and later the outputs of its forwards."""
        if self._is_done or self._profile is None or iteration.signature in self._checked:
            return
        self._checked.add(iteration.signature)
        expected = self._profile.input_bytes * iteration.num_rows / self._profile.micro_batch_size
        actual = bytes_of(iteration.inputs)
        if not self._difference and expected and _differ(actual, expected):
            rows = show_count(iteration.num_rows, "row")
            self._difference = (
                f"{rows} of the inputs take {show_bytes(actual)}, but {show_bytes(expected)} in the profile"
            )
        if not self._difference:
            iteration.on_output = self._look
        elif self._rank:
            self._is_done = True

    def finish(self) -> None:
        """End the iteration: warn if a size differs."""
        if self._is_done or not self._difference:
            return
        self._is_done = True
        autocast = " under the same autocast" if torch.is_autocast_enabled("cpu") else ""
        warnings.warn(
            f"the trained model differs from the profiled one: {self._difference}. Training results are correct, but "
            "predicted times and memory hold for the profile. Profile the model again with these inputs"
            f"{autocast}, and make a new plan.",
            ProfileWarning,
            stacklevel=4,
        )

    def _look(self, stage: int, out: PackedPayload, rows: Rows) -> None:
        """Check the output of a stage."""
        if self._difference or self._profile is None or self._stages[stage].forward[0] != self._rank:
            return
        last = self._stages[stage].stop - 1
        expected = float(fit(self._profile, self._profile.kinds[0]).sizes.cut.at(rows.num)[last])
        actual = sum(tensor.nbytes for tensor in out.tensors)
        if expected and _differ(actual, expected):
            self._difference = (
                f"the activations after layer {self._profile.units[last].name!r} take {show_bytes(actual)} for "
                f"{show_count(rows.num, 'row')}, but {show_bytes(expected)} in the profile"
            )


def _compare_parameters(profile: Profile, blocks: Sequence[Block]) -> str:
    for unit, block in zip(profile.units, blocks, strict=True):
        for what, actual, expected in (
            ("parameters", sum(item.nbytes for item in block.parameters.values()), unit.parameter_bytes),
            (
                "trained parameters",
                sum(item.nbytes for item in block.parameters.values() if item.requires_grad),
                unit.trained_bytes,
            ),
        ):
            if not _differ(actual, expected):
                continue
            return (
                f"the {what} of layer {block.name!r} take {show_bytes(actual)}, but those of {unit.name!r} take "
                f"{show_bytes(expected)} in the profile"
            )
    return ""


def _differ(actual: float, expected: float) -> bool:
    return abs(actual - expected) > TOLERANCE * max(actual, expected)
