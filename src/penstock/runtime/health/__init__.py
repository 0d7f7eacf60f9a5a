"""Heartbeats, the status of ranks, and checks for finite numbers."""

from penstock.runtime.health.finite_checks import check_batch, check_loss, check_output, describe_rows
from penstock.runtime.health.heartbeat import Heartbeat
from penstock.runtime.health.status import RankStatus

__all__ = ["Heartbeat", "RankStatus", "check_batch", "check_loss", "check_output", "describe_rows"]
