"""Importers of topologies that other tools describe."""

from penstock.cluster.topology.link_types import parse_link_types
from penstock.cluster.topology.load import parse_topology
from penstock.cluster.topology.options import UNKNOWN_KIND, Wanted

__all__ = ["UNKNOWN_KIND", "Wanted", "parse_link_types", "parse_topology"]
