"""One emulated rank: the real executor with stages that sleep."""

from penstock.emulation.rank.plan_switch import EmulatedSwitch
from penstock.emulation.rank.rank import EmulatedIteration, run_rank
from penstock.emulation.rank.scratch import Scratch, largest_payload, largest_payload_of_any_plan

__all__ = [
    "EmulatedIteration",
    "EmulatedSwitch",
    "Scratch",
    "largest_payload",
    "largest_payload_of_any_plan",
    "run_rank",
]
