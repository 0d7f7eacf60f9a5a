"""Runs of rank processes: how their ranks are started, their events, and their failures."""

from penstock.launch.processes.events import (
    Began,
    Done,
    Event,
    EventWriter,
    Exited,
    Failed,
    LinksChanged,
    Noted,
    Noticed,
    Sampled,
    Started,
    Stepped,
    failed_event,
)
from penstock.launch.processes.failures import RunFailed, find_failure
from penstock.launch.processes.rank_run import LocalRanks, RankAgent, Run, SingleProcess, run_ranks
from penstock.launch.processes.torchrun import torchrun_command

__all__ = [
    "Began",
    "Done",
    "Event",
    "EventWriter",
    "Exited",
    "Failed",
    "LinksChanged",
    "LocalRanks",
    "Noted",
    "Noticed",
    "RankAgent",
    "Run",
    "RunFailed",
    "Sampled",
    "SingleProcess",
    "Started",
    "Stepped",
    "failed_event",
    "find_failure",
    "run_ranks",
    "torchrun_command",
]
