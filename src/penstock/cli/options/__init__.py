"""Command-line options that several verbs share."""

from penstock.cli.options.amounts import Amounts, amount_options
from penstock.cli.options.elastic import elastic_options
from penstock.cli.options.hosts import host_options
from penstock.cli.options.losses import LossOptions, loss_options
from penstock.cli.options.method import Method, method_options
from penstock.cli.options.plan_file import PlanFile, plan_file_options
from penstock.cli.options.recipe import RecipeOptions
from penstock.cli.options.search_space import AutoOptions
from penstock.cli.options.sources import check_outputs, computed_options, profile_options, refuse_unused
from penstock.cli.options.training import training_options

__all__ = [
    "Amounts",
    "AutoOptions",
    "LossOptions",
    "Method",
    "PlanFile",
    "RecipeOptions",
    "amount_options",
    "check_outputs",
    "computed_options",
    "elastic_options",
    "host_options",
    "loss_options",
    "method_options",
    "plan_file_options",
    "profile_options",
    "refuse_unused",
    "training_options",
]
