"""Costs that several planners share: replica groups and the channels between them."""

from penstock.planners.costs.replica_groups import BACKWARD, FORWARD, HUGE, Price, Replicas

__all__ = ["BACKWARD", "FORWARD", "HUGE", "Price", "Replicas"]
