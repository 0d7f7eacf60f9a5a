"""Emulation: runs a plan on one machine, with shaped links and devices that sleep."""

from penstock.emulation.clock import Lateness
from penstock.emulation.faults import Faults, LinkFault, parse_killed_rank, parse_link_fault, parse_slow_device
from penstock.emulation.limits import find_limits
from penstock.emulation.spec import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, Emulation, load_emulation, save_emulation
from penstock.emulation.supervisor import SupervisorEvents, run_ranks
from penstock.emulation.time_scale import choose_slow_down

__all__ = [
    "DEFAULT_STEPS",
    "DEFAULT_TIMEOUT_S",
    "Emulation",
    "Faults",
    "Lateness",
    "LinkFault",
    "SupervisorEvents",
    "choose_slow_down",
    "find_limits",
    "load_emulation",
    "parse_killed_rank",
    "parse_link_fault",
    "parse_slow_device",
    "run_ranks",
    "save_emulation",
]
