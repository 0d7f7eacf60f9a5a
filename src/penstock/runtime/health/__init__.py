"""Heartbeats and finite checks."""

from penstock.runtime.health.finite_checks import check_batch, check_loss, check_output, where
from penstock.runtime.health.heartbeat import Doing, Watch

__all__ = ["Doing", "Watch", "check_batch", "check_loss", "check_output", "where"]
