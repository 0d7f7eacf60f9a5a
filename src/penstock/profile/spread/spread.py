"""`Spread`: how far the times of training may lie from those of a profile."""

import math

import msgspec

from penstock.profile.consistency import make_floats
from penstock.profile.limits import Ratio

PARTS = ("forward", "input_grad", "weight_grad", "step")
"""The passes with a measured spread for each layer."""
_RATIOS = ("excess", "excess_virtual", "excess_remote", "iteration", "device", "stage", "link", "action")


class Spread(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How far the times of training may lie from those of a profile: relative standard deviations by cause.

    Errors that are the same in every micro-batch are apart from the noise of single actions, because independent noise
    averages out over an iteration and the others do not.

    Attributes:
        reason: Where the figures come from, as a sentence.
        is_measured: Whether the times of the layers and their spread were measured on the user's devices. Only then
            does the planner auto prefer a simpler plan within its uncertainty.
        excess: By how much iterations take longer than predicted on average, with one stage per device.
        excess_virtual: By how much more with several stages per device.
        excess_remote: By how much more with remote backwards.
        iteration: Error that all times of a run share. It widens predicted intervals, but favours no plan.
        device: Error of all passes of a device.
        stage: Error of all passes of a stage in one direction.
        link: Error of all transfers of a link.
        action: Noise of a single action, where `forward` and the others do not state it.
        forward: Noise of a single forward of each layer. Empty: `action`.
        input_grad: The same of input gradients.
        weight_grad: The same of weight gradients.
        step: The same of optimizer steps.

    Example:
        >>> Spread(reason="An assumption.", device=0.02, action=0.05).is_measured
        False
    """

    reason: str
    is_measured: bool = False
    excess: Ratio = 0.0
    excess_virtual: Ratio = 0.0
    excess_remote: Ratio = 0.0
    iteration: Ratio = 0.0
    device: Ratio = 0.0
    stage: Ratio = 0.0
    link: Ratio = 0.0
    action: Ratio = 0.0
    forward: tuple[Ratio, ...] = ()
    input_grad: tuple[Ratio, ...] = ()
    weight_grad: tuple[Ratio, ...] = ()
    step: tuple[Ratio, ...] = ()

    def __post_init__(self) -> None:
        make_floats(self, _RATIOS)
        for name in PARTS:
            values = getattr(self, name)
            msgspec.structs.force_setattr(self, name, tuple(float(value) for value in values))
        values = [getattr(self, name) for name in _RATIOS] + [value for name in PARTS for value in getattr(self, name)]
        if not all(map(math.isfinite, values)):
            raise ValueError("spreads must be finite")

    def check_layers(self, num_units: int) -> None:
        """Raise ValueError unless the spreads of layers are for this number of layers."""
        for name in PARTS:
            count = len(getattr(self, name))
            if count not in (0, num_units):
                raise ValueError(f"spread.{name} has {count} entries for {num_units} layers")
