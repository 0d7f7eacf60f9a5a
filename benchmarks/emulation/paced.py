"""Emulation of a plan at a pace that the machine keeps up with."""

from typing import NamedTuple

import msgspec

from penstock.emulation import Emulation, choose_slow_down
from penstock.launch import emulate

PACES = (1.0, 2.0, 4.0)
"""Slow-down factors on top of the estimated one. The first at which the machine keeps up counts, else the last."""


class Paced(NamedTuple):
    """The predicted and the emulated iteration times of a plan, in seconds of its cluster."""

    num_devices: int
    slow_down: float
    predicted_s: float
    measured_s: tuple[float, ...]
    limits: tuple[str, ...]
    """The ways in which the machine did not keep up."""


def emulate_paced(emulation: Emulation) -> Paced:
    """Emulate a plan; repeat at half the pace if the machine does not keep up."""
    for pace in PACES:
        result = _emulate(emulation, choose_slow_down(emulation.evaluation) * pace)
        if not result.limits:
            break
    return result


def _emulate(emulation: Emulation, slow_down: float) -> Paced:
    predicted_s = emulation.evaluation.timeline.iteration_s
    emulation = msgspec.structs.replace(
        emulation, slow_down=slow_down, timeout_s=max(emulation.timeout_s, 10 * predicted_s * slow_down)
    )
    result = emulate(emulation)
    if result.failure is not None:
        raise result.failure
    if result.was_stopped:
        raise KeyboardInterrupt
    return Paced(
        num_devices=len(emulation.devices),
        slow_down=slow_down,
        predicted_s=predicted_s,
        measured_s=tuple(timeline.iteration_s for timeline in result.timelines),
        limits=result.limits,
    )
