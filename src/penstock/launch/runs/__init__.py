"""Runs of ranks: how they are started, their events, and their failures."""

from penstock.launch.runs.events import (
    Began,
    Done,
    Event,
    EventWriter,
    Exited,
    Failed,
    LinksChanged,
    MemoryMeasured,
    Noted,
    Noticed,
    Paused,
    Resumed,
    Sampled,
    Started,
    Stepped,
    Stopping,
    Switched,
    failed_event,
)
from penstock.launch.runs.failures import RunFailed, find_failure
from penstock.launch.runs.first_cause import find_first_cause
from penstock.launch.runs.host_ends import open_link
from penstock.launch.runs.host_link import HostLink
from penstock.launch.runs.host_messages import Join
from penstock.launch.runs.rank_run import LocalRanks, RankAgent, SingleProcess, run_ranks
from penstock.launch.runs.rank_state import Run
from penstock.launch.runs.rank_watch import SWITCH, stop_file
from penstock.launch.runs.torchrun import parse_endpoint, torchrun_command

__all__ = [
    "SWITCH",
    "Began",
    "Done",
    "Event",
    "EventWriter",
    "Exited",
    "Failed",
    "HostLink",
    "Join",
    "LinksChanged",
    "LocalRanks",
    "MemoryMeasured",
    "Noted",
    "Noticed",
    "Paused",
    "RankAgent",
    "Resumed",
    "Run",
    "RunFailed",
    "Sampled",
    "SingleProcess",
    "Started",
    "Stepped",
    "Stopping",
    "Switched",
    "failed_event",
    "find_failure",
    "find_first_cause",
    "open_link",
    "parse_endpoint",
    "run_ranks",
    "stop_file",
    "torchrun_command",
]
