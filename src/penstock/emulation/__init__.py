"""Emulation: a plan runs on one machine over shaped links, with devices that sleep."""

from penstock.emulation.clock import Lateness
from penstock.emulation.faults import Faults, LinkFault, parse_killed, parse_link, parse_slowed
from penstock.emulation.limits import find_limits
from penstock.emulation.spec import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, Emulation, load_emulation, save_emulation
from penstock.emulation.supervisor import Meeting, Told, run_world
from penstock.emulation.time_scale import slow_down_for

__all__ = [
    "DEFAULT_STEPS",
    "DEFAULT_TIMEOUT_S",
    "Emulation",
    "Faults",
    "Lateness",
    "LinkFault",
    "Meeting",
    "Told",
    "find_limits",
    "load_emulation",
    "parse_killed",
    "parse_link",
    "parse_slowed",
    "run_world",
    "save_emulation",
    "slow_down_for",
]
