"""Starting and supervising ranks: train, emulate, probe and check numerics as library calls."""

from penstock.launch.adaptive_training import train_adaptively
from penstock.launch.busy_processes import busy_processes
from penstock.launch.elastic import ElasticOptions, PlanChange, train_elastic
from penstock.launch.emulation import EmulationRun, emulate
from penstock.launch.hosts import Hosts, default_threads
from penstock.launch.model_script import (
    DEFAULT_FUNCTION,
    check_script,
    is_script,
    load_model,
    run_in_script,
    script_function,
    script_path,
)
from penstock.launch.numerics import check_numerics
from penstock.launch.probe import is_rank, run_local
from penstock.launch.runs import Stopping
from penstock.launch.scenarios import AdaptOptions, ScenarioRun, play_scenario
from penstock.launch.slurm import sbatch_script, slurm_hosts
from penstock.launch.train_options import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, TrainOptions, shell_command
from penstock.launch.training import TrainResult, loss_difference, train, train_command

__all__ = [
    "DEFAULT_FUNCTION",
    "DEFAULT_STEPS",
    "DEFAULT_TIMEOUT_S",
    "AdaptOptions",
    "ElasticOptions",
    "EmulationRun",
    "Hosts",
    "PlanChange",
    "ScenarioRun",
    "Stopping",
    "TrainOptions",
    "TrainResult",
    "busy_processes",
    "check_numerics",
    "check_script",
    "default_threads",
    "emulate",
    "is_rank",
    "is_script",
    "load_model",
    "loss_difference",
    "play_scenario",
    "run_in_script",
    "run_local",
    "sbatch_script",
    "script_function",
    "script_path",
    "shell_command",
    "slurm_hosts",
    "train",
    "train_adaptively",
    "train_command",
    "train_elastic",
]
