"""`penstock selftest`: whether Penstock works on this machine, as one file to attach to an issue."""

from penstock.launch.selftest.checks import Check, list_checks
from penstock.launch.selftest.environment import Environment, describe_machine, find_devices
from penstock.launch.selftest.results import CheckResult, Selftest, Verdict, save_selftest
from penstock.launch.selftest.run import run_selftest

__all__ = [
    "Check",
    "CheckResult",
    "Environment",
    "Selftest",
    "Verdict",
    "describe_machine",
    "find_devices",
    "list_checks",
    "run_selftest",
    "save_selftest",
]
