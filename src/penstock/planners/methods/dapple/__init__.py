"""DAPPLE: stages on groups of devices around a pivot stage."""

from penstock.planners.methods.dapple.planner import dapple

__all__ = ["dapple"]
