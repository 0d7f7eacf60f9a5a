"""Clusters: devices, hosts, links and their file format."""

from penstock.cluster.describe import HostRow, cluster_rows, link_classes
from penstock.cluster.diagnostics import age_doubt, cluster_doubts
from penstock.cluster.from_wires import assemble
from penstock.cluster.load import load_cluster
from penstock.cluster.names import near_names
from penstock.cluster.provenance import Probed
from penstock.cluster.subset import part_of
from penstock.cluster.types import Cluster, Device, Host, Link, Wire

__all__ = [
    "Cluster",
    "Device",
    "Host",
    "HostRow",
    "Link",
    "Probed",
    "Wire",
    "age_doubt",
    "assemble",
    "cluster_doubts",
    "cluster_rows",
    "link_classes",
    "load_cluster",
    "near_names",
    "part_of",
]
