"""Importers of topologies from other tools: nvidia-smi, NCCL, Slurm, CSV."""

from penstock.cluster.topology.link_types import parse_link_types
from penstock.cluster.topology.load import parse_topology
from penstock.cluster.topology.options import UNKNOWN_KIND, ImportOptions

__all__ = ["UNKNOWN_KIND", "ImportOptions", "parse_link_types", "parse_topology"]
