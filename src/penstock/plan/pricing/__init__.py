"""Pricing: from a plan, a profile and a cluster to `Costs`."""

from penstock.plan.pricing.allreduce_ring import measured_for, reduce_line, reduce_ring
from penstock.plan.pricing.costs import Collective, Costs, replicas_by_device
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, PARAMETERS, SAVED, Flows
from penstock.plan.pricing.pricing import price
from penstock.plan.pricing.restrictions import PlanRestrictions, Violation, find_restrictions
from penstock.plan.pricing.row_overlap import NEGLIGIBLE_SHARE, overlaps, whole_rows
from penstock.plan.pricing.unit_seconds import Part, UnitClock, check_kinds

__all__ = [
    "ACTIVATION",
    "GRADIENT",
    "NEGLIGIBLE_SHARE",
    "PARAMETERS",
    "SAVED",
    "Collective",
    "Costs",
    "Flows",
    "Part",
    "PlanRestrictions",
    "UnitClock",
    "Violation",
    "check_kinds",
    "find_restrictions",
    "measured_for",
    "overlaps",
    "price",
    "reduce_line",
    "reduce_ring",
    "replicas_by_device",
    "whole_rows",
]
