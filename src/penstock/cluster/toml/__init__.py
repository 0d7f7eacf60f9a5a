"""Cluster files in TOML: reader and writer."""

from penstock.cluster.toml.reader import parse_cluster, read_cluster
from penstock.cluster.toml.table import parse_wire
from penstock.cluster.toml.writer import write_cluster

__all__ = ["parse_cluster", "parse_wire", "read_cluster", "write_cluster"]
