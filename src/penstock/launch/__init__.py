"""Starting and supervising ranks: train, emulate, probe and check numerics as library calls."""

from penstock.launch.busy_processes import companions
from penstock.launch.emulation import EmulationRun, emulate
from penstock.launch.events import Stepped
from penstock.launch.hosts import Hosts, default_threads
from penstock.launch.losses import loss_difference
from penstock.launch.model_script import check_script, is_script, load_model, run_in_script, script_path
from penstock.launch.numerics import check_numerics
from penstock.launch.probe import is_started, run_local
from penstock.launch.train_options import DEFAULT_STEPS, DEFAULT_TIMEOUT_S, Training, shown_command
from penstock.launch.training import Trained, command_of, train

__all__ = [
    "DEFAULT_STEPS",
    "DEFAULT_TIMEOUT_S",
    "EmulationRun",
    "Hosts",
    "Stepped",
    "Trained",
    "Training",
    "check_numerics",
    "check_script",
    "command_of",
    "companions",
    "default_threads",
    "emulate",
    "is_script",
    "is_started",
    "load_model",
    "loss_difference",
    "run_in_script",
    "run_local",
    "script_path",
    "shown_command",
    "train",
]
