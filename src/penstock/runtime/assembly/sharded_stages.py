"""The sharded optimizers of a rank, as a part of phase 7 of assembly."""

from collections.abc import Mapping, Sequence

from torch import nn

from penstock.model import Block
from penstock.runtime.assembly.connection import OpenTransport
from penstock.runtime.layout import Layout, Reducer
from penstock.runtime.precision import Conversion
from penstock.runtime.sharding import OptimizerShards, ShardedGroup, make_buckets
from penstock.runtime.stage import TorchStage


def sharded_groups(
    layout: Layout, rank: int, opened: OpenTransport, runners: Mapping[int, TorchStage]
) -> list[ShardedGroup]:
    """Return the stages of a rank whose optimizer is sharded."""
    return [
        ShardedGroup(
            item.number,
            group,
            tuple((name, runners[item.number].trained[name]) for name in item.parameters),
            _part_ranks(item),
            rank,
        )
        for item, group in zip(layout.reducers, opened.reductions, strict=True)
        if item.is_sharded and rank in item.ranks
    ]


def find_shard_owners(layout: Layout, blocks: Sequence[Block]) -> dict[str, int]:
    """Return for each parameter of a sharded stage the rank that steps it, or the first piece of it."""
    named = {name: item for block in blocks for name, item in block.parameters.items()}
    return {
        name: ranks[0]
        for reducer in layout.reducers
        if reducer.is_sharded
        for bucket in make_buckets([(name, named[name]) for name in reducer.parameters], _part_ranks(reducer))
        for name, ranks in bucket.holders.items()
    }


def keep_originals(
    conversion: Conversion,
    shards: OptimizerShards,
    stepped: Mapping[str, nn.Parameter],
    trained: Mapping[str, nn.Parameter],
) -> None:
    """Let the conversion know the values that pieces of parameters had before it."""
    for name, part in shards.slices.items():
        conversion.keep(stepped[name], part.of(conversion.original(trained[name])))


def _part_ranks(reducer: Reducer) -> tuple[int, ...]:
    """The ranks of a reduction in the order of their process group (`make_ring_groups`)."""
    return tuple(reversed(reducer.ranks))
