"""Profiles: the cost of each layer of a model. Readers of other formats, and analytic profiles."""

from penstock.profile.collectives import AllReduce, MeasuredAllReduce, measured_all_reduce, read_all_reduces
from penstock.profile.data_sheets import DeviceKind
from penstock.profile.device_kinds import (
    KINDS,
    canonical_kind,
    find_kind,
    group_kind,
    group_size,
    match_kind,
    near_kinds,
    relative_speed,
)
from penstock.profile.layer_roles import Cuts, LayerRole, allowed_cuts, is_inside_block, layer_roles
from penstock.profile.limits import MAX_MICRO_BATCH_SIZE, Rows
from penstock.profile.load import is_computed, load_profile, save_profile
from penstock.profile.overhead import Overhead
from penstock.profile.precision import PRECISIONS, TrainingPrecision, find_precision
from penstock.profile.recipe import Attention, Checkpointing, Precision, Recipe
from penstock.profile.restrictions import Restriction, Rule
from penstock.profile.row_costs import CostModel, UnitCosts, affine, fit
from penstock.profile.spread import PARTS, Spread, measured_spread
from penstock.profile.types import UNNAMED_KIND, ParameterCounts, Profile, Sizes, Tie, Times, Unit
from penstock.profile.untied import untied

__all__ = [
    "KINDS",
    "MAX_MICRO_BATCH_SIZE",
    "PARTS",
    "PRECISIONS",
    "UNNAMED_KIND",
    "AllReduce",
    "Attention",
    "Checkpointing",
    "CostModel",
    "Cuts",
    "DeviceKind",
    "LayerRole",
    "MeasuredAllReduce",
    "Overhead",
    "ParameterCounts",
    "Precision",
    "Profile",
    "Recipe",
    "Restriction",
    "Rows",
    "Rule",
    "Sizes",
    "Spread",
    "Tie",
    "Times",
    "TrainingPrecision",
    "Unit",
    "UnitCosts",
    "affine",
    "allowed_cuts",
    "canonical_kind",
    "find_kind",
    "find_precision",
    "fit",
    "group_kind",
    "group_size",
    "is_computed",
    "is_inside_block",
    "layer_roles",
    "load_profile",
    "match_kind",
    "measured_all_reduce",
    "measured_spread",
    "near_kinds",
    "read_all_reduces",
    "relative_speed",
    "save_profile",
    "untied",
]
