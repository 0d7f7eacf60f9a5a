"""Readers of Slurm's topology.conf and topology.yaml."""

from penstock.cluster.topology.slurm.conf import looks_like_slurm, parse_slurm
from penstock.cluster.topology.slurm.yaml import looks_like_slurm_yaml, parse_slurm_yaml

__all__ = ["looks_like_slurm", "looks_like_slurm_yaml", "parse_slurm", "parse_slurm_yaml"]
