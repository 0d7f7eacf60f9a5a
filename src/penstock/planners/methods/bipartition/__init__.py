"""Bi-Partition: forward and backward cut at different places."""

from penstock.planners.methods.bipartition.planner import bipartition, two_set_plans

__all__ = ["bipartition", "two_set_plans"]
