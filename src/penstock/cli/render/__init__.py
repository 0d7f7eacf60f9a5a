"""Results as text and tables for the terminal."""

from penstock.cli.render.ablation import show_ablation
from penstock.cli.render.choices import counts_data, show_counts, show_sizes, sizes_data
from penstock.cli.render.cluster_age import warn_if_old
from penstock.cli.render.cluster_next import planning
from penstock.cli.render.comparison import comparison_data, show_comparison
from penstock.cli.render.emulation import next_command, show_emulation
from penstock.cli.render.engine_cost import EngineCost, engine_data, show_engine_cost
from penstock.cli.render.evaluation import bound_of, contents_of, evaluation_data, show_evaluation
from penstock.cli.render.running import running_data, show_running
from penstock.cli.render.training import show_training, training_data

__all__ = [
    "EngineCost",
    "bound_of",
    "comparison_data",
    "contents_of",
    "counts_data",
    "engine_data",
    "evaluation_data",
    "next_command",
    "planning",
    "running_data",
    "show_ablation",
    "show_comparison",
    "show_counts",
    "show_emulation",
    "show_engine_cost",
    "show_evaluation",
    "show_running",
    "show_sizes",
    "show_training",
    "sizes_data",
    "training_data",
    "warn_if_old",
]
