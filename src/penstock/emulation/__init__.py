"""Emulation: runs a plan on one machine, with shaped links and devices that sleep."""

from penstock.emulation.clock import Lateness
from penstock.emulation.commands import SwitchCommand, join_moves, read_switch, stop_path, write_switch
from penstock.emulation.faults import Faults, LinkFault, parse_killed_rank, parse_link_fault, parse_slow_device
from penstock.emulation.limits import find_limits
from penstock.emulation.scenario import Happening, Scenario, load_scenario
from penstock.emulation.spec import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, Emulation, load_emulation, save_emulation
from penstock.emulation.supervisor import SupervisorEvents, run_ranks
from penstock.emulation.time_scale import choose_slow_down

__all__ = [
    "DEFAULT_STEPS",
    "DEFAULT_TIMEOUT_S",
    "Emulation",
    "Faults",
    "Happening",
    "Lateness",
    "LinkFault",
    "Scenario",
    "SupervisorEvents",
    "SwitchCommand",
    "choose_slow_down",
    "find_limits",
    "join_moves",
    "load_emulation",
    "load_scenario",
    "parse_killed_rank",
    "parse_link_fault",
    "parse_slow_device",
    "read_switch",
    "run_ranks",
    "save_emulation",
    "stop_path",
    "write_switch",
]
