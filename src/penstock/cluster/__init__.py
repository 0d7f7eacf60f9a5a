"""Clusters: devices, hosts, links, and their file format."""

from penstock.cluster.describe import HostRow, cluster_rows, link_classes
from penstock.cluster.diagnostics import age_warning, cluster_warnings
from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.load import load_cluster
from penstock.cluster.provenance import ProbeRecord
from penstock.cluster.subset import select_devices
from penstock.cluster.types import Cluster, Device, Host, Link, Wire

__all__ = [
    "Cluster",
    "Device",
    "Host",
    "HostRow",
    "Link",
    "ProbeRecord",
    "Wire",
    "age_warning",
    "cluster_from_wires",
    "cluster_rows",
    "cluster_warnings",
    "link_classes",
    "load_cluster",
    "select_devices",
]
