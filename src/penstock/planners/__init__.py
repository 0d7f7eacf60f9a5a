"""Planners: (profile, cluster, micro-batches) -> plan. One file a method."""
