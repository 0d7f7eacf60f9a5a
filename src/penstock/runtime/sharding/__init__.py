"""Sharded optimizers: replicas of a stage share its parameters between them for the optimizer step."""

from penstock.runtime.sharding.bucket import Bucket, make_buckets
from penstock.runtime.sharding.elementwise import require_elementwise
from penstock.runtime.sharding.grad_scatter import GradScatter
from penstock.runtime.sharding.optimizer_shards import OptimizerShards, ShardedGroup, Slice
from penstock.runtime.sharding.whole_tensors import collect_whole

__all__ = [
    "Bucket",
    "GradScatter",
    "OptimizerShards",
    "ShardedGroup",
    "Slice",
    "collect_whole",
    "make_buckets",
    "require_elementwise",
]
