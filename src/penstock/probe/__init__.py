"""Measurement of a cluster with torch.distributed: links, shared interfaces, devices."""

from penstock.probe.cluster_from_probe import build_cluster
from penstock.probe.measure import probe
from penstock.probe.rank_group import open_group
from penstock.probe.store_exchange import ReportedError

__all__ = ["ReportedError", "build_cluster", "open_group", "probe"]
