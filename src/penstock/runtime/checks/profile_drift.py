"""Whether what is trained is what was profiled: where bytes differ, it is said once.

Nothing is computed wrongly where they do, as messages tell their form themselves. But predicted times, and the proof
that memory is enough, are for what was profiled.
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
from penstock.runtime.tensors import Packed, Rows
from penstock.units import counted, show_bytes

TOLERANCE = 0.02
"""Lines through measured sizes are exact; through one size, they miss what does not depend on rows."""


class Profiled:
    """What one rank sees of it. Every rank has the whole batch, so rank 0 speaks of that."""

    def __init__(
        self, profile: Profile | None, blocks: Sequence[Block], stages: Sequence[StageView], rank: int
    ) -> None:
        self._profile = profile
        self._stages = stages
        self._rank = rank
        self._found = "" if profile is None else _other_parameters(profile, blocks)
        self._is_told = profile is None
        self._seen: set[Any] = set()
        """The forms of batches that were looked at: what they make has the same sizes every time."""

    def begin(self, iteration: Iteration) -> None:
        """Before a training iteration: look at its inputs, and later at what its forwards make."""
        if self._is_told or self._profile is None or iteration.signature in self._seen:
            return
        self._seen.add(iteration.signature)
        expected = self._profile.input_bytes * iteration.num_rows / self._profile.micro_batch_size
        found = bytes_of(iteration.inputs)
        if not self._found and expected and _differ(found, expected):
            rows = counted(iteration.num_rows, "row")
            self._found = f"{rows} of the inputs have {show_bytes(found)}, and {show_bytes(expected)} in the profile"
        if not self._found:
            iteration.look = self._look
        elif self._rank:
            self._is_told = True

    def finish(self) -> None:
        """After it: say what was found, if anything."""
        if self._is_told or not self._found:
            return
        self._is_told = True
        autocast = " under the same autocast" if torch.is_autocast_enabled("cpu") else ""
        warnings.warn(
            f"this is not what was profiled: {self._found}. Training is right all the same, but what was predicted, "
            f"and that memory is enough, is for the profile: profile the model with such inputs{autocast}, and plan "
            "again.",
            ProfileWarning,
            stacklevel=4,
        )

    def _look(self, stage: int, out: Packed, rows: Rows) -> None:
        """What passes behind a stage."""
        if self._found or self._profile is None or self._stages[stage].forward[0] != self._rank:
            return
        last = self._stages[stage].stop - 1
        expected = float(fit(self._profile, self._profile.kinds[0]).sizes.cut.at(rows.num)[last])
        found = sum(tensor.nbytes for tensor in out.tensors)
        if expected and _differ(found, expected):
            self._found = (
                f"behind unit {self._profile.units[last].name!r} {show_bytes(found)} pass for "
                f"{counted(rows.num, 'row')}, and {show_bytes(expected)} in the profile"
            )


def _other_parameters(profile: Profile, blocks: Sequence[Block]) -> str:
    for unit, block in zip(profile.units, blocks, strict=True):
        found = sum(item.nbytes for item in block.parameters.values())
        if _differ(found, unit.parameter_bytes):
            return (
                f"block {block.name!r} has {show_bytes(found)} of parameters, and unit {unit.name!r} "
                f"{show_bytes(unit.parameter_bytes)} in the profile"
            )
    return ""


def _differ(found: float, expected: float) -> bool:
    return abs(found - expected) > TOLERANCE * max(found, expected)
