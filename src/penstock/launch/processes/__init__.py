"""Rank processes: starting, supervising and ending them, and reading their events."""

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
from penstock.launch.processes.launcher import (
    Launcher,
    exit_with_parent,
    prepare_rank,
    rank_environments,
    sigterm_as_ctrl_c,
)
from penstock.launch.processes.rank_run import LocalRanks, RankAgent, Run, SingleProcess, run_ranks, stderr_path
from penstock.launch.processes.run_dir import run_dir
from penstock.launch.processes.torchrun import torchrun_command

__all__ = [
    "Began",
    "Done",
    "Event",
    "EventWriter",
    "Exited",
    "Failed",
    "Launcher",
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
    "exit_with_parent",
    "failed_event",
    "find_failure",
    "prepare_rank",
    "rank_environments",
    "run_dir",
    "run_ranks",
    "sigterm_as_ctrl_c",
    "stderr_path",
    "torchrun_command",
]
