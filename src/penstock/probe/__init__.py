"""Measuring a cluster with torch.distributed: links, shared interfaces, devices."""

from penstock.probe.cluster_from_probe import conclude
from penstock.probe.measure import probe
from penstock.probe.rank_group import ToldByFirstError, open_group

__all__ = ["ToldByFirstError", "conclude", "open_group", "probe"]
