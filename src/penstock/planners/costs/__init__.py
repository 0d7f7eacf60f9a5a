"""Costs that several planners share: those of replica groups and of the channels between them."""

from penstock.planners.costs.replica_groups import BACKWARD, FORWARD, HUGE, GroupCosts, Price

__all__ = ["BACKWARD", "FORWARD", "HUGE", "GroupCosts", "Price"]
