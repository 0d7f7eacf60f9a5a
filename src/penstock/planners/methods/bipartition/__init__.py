"""Bi-Partition: different cuts for the forward and for the backward."""

from penstock.planners.methods.bipartition.planner import bipartition, two_set_plans

__all__ = ["bipartition", "two_set_plans"]
