"""Reader of NCCL's topology XML."""

from penstock.cluster.topology.nccl.xml import looks_like_nccl, parse_nccl

__all__ = ["looks_like_nccl", "parse_nccl"]
