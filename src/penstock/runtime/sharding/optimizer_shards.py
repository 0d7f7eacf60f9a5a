"""The parameters of sharded stages that one rank steps, and the all-gather of all of them after the step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Describe, translate_errors
from penstock.runtime.sharding.bucket import Bucket, Piece, make_buckets
from penstock.runtime.transport import Transport


class Slice(NamedTuple):
    """The elements of a divided parameter that a rank has."""

    start: int
    stop: int
    shape: tuple[int, ...]
    """The shape of the whole parameter."""
    holders: tuple[int, ...]
    """The ranks that have its pieces, in order."""

    def of(self, whole: Tensor) -> Tensor:
        """The elements of a tensor of the whole parameter's shape, in the form of the piece."""
        return whole.reshape(-1)[self.start : self.stop].view(self.piece_shape)

    @property
    def piece_shape(self) -> tuple[int, ...]:
        """The shape of the piece: as many dimensions as the parameter has, all but the last of length 1."""
        return (*(1 for _ in self.shape[1:]), self.stop - self.start)


@dataclass(frozen=True, eq=False)
class ShardedGroup:
    """The parameters that the replicas of a stage share between them, as this rank has them."""

    number: int
    """The stage."""
    group: Any
    """The process group."""
    parameters: tuple[tuple[str, nn.Parameter], ...]
    """The parameters of the layers, by name, in the order of the model."""
    ranks: tuple[int, ...]
    """The ranks in the order of the process group."""
    rank: int
    """This rank."""

    @cached_property
    def buckets(self) -> list[Bucket]:
        """The division of the parameters between the ranks."""
        return make_buckets(self.parameters, self.ranks)

    @cached_property
    def index(self) -> int:
        """The part of each bucket that this rank has."""
        return self.ranks.index(self.rank)

    def layer_parameters(self, bucket: Bucket) -> list[nn.Parameter]:
        """The parameters of a bucket."""
        named = dict(self.parameters)
        return [named[name] for name in bucket.names]

    @cached_property
    def slices(self) -> dict[str, Slice]:
        """The divided parameters that this rank has a piece of."""
        named = dict(self.parameters)
        return {
            bucket.names[piece.parameter]: Slice(
                piece.start,
                piece.stop,
                tuple(named[bucket.names[piece.parameter]].shape),
                bucket.holders[bucket.names[piece.parameter]],
            )
            for bucket in self.buckets
            for piece in bucket.parts[self.index]
            if not bucket.is_whole(piece)
        }

    @cached_property
    def owned(self) -> dict[str, nn.Parameter]:
        """The parameters that this rank steps: whole ones themselves, and pieces that share the memory of others."""
        named = dict(self.parameters)
        found: dict[str, nn.Parameter] = {}
        for bucket in self.buckets:
            for piece in bucket.parts[self.index]:
                name = bucket.names[piece.parameter]
                found[name] = named[name] if bucket.is_whole(piece) else _piece(named[name], self.slices[name])
            empty = [name for name, size in zip(bucket.names, bucket.sizes, strict=True) if size == 0]
            found |= {name: named[name] for name in empty if self.index == 0}
        return found


def _piece(parameter: nn.Parameter, part: Slice) -> nn.Parameter:
    piece = nn.Parameter(part.of(parameter.detach()))
    piece.grad_dtype = parameter.grad_dtype
    return piece


class OptimizerShards:
    """The sharded stages of one rank.

    Args:
        groups: The sharded stages whose backward is on this rank.
        transport: Waits for the collectives.
    """

    def __init__(self, groups: Sequence[ShardedGroup], transport: Transport) -> None:
        self._groups = groups
        self._transport = transport

    def __bool__(self) -> bool:
        return bool(self._groups)

    @cached_property
    def slices(self) -> dict[str, Slice]:
        """The divided parameters that this rank has a piece of, by name."""
        return {name: part for group in self._groups for name, part in group.slices.items()}

    def stepped(self, trained: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
        """The parameters that this rank steps, among those that it trains, by name."""
        sharded = {name for group in self._groups for name, _ in group.parameters}
        owned = {name: item for group in self._groups for name, item in group.owned.items()}
        steps = {name: owned.get(name, item) for name, item in trained.items()}
        return {name: item for name, item in steps.items() if name not in sharded or name in owned}

    @torch.no_grad()
    def gather(self, describe: Describe) -> None:
        """After an optimizer step: get the parameters that other ranks have stepped. Collective."""
        pending = []
        for group in self._groups:
            for bucket in group.buckets:
                parameters = group.layer_parameters(bucket)
                for dtype in dict.fromkeys(item.dtype for item in parameters if item.numel()):
                    parts = [
                        [piece for piece in part if parameters[piece.parameter].dtype == dtype] for part in bucket.parts
                    ]
                    pending.append((parameters, parts, group, *self._start(parameters, parts, group, describe)))
        for parameters, parts, group, received, work in pending:
            self._transport.wait_device(work, describe)
            for index, (part, values) in enumerate(zip(parts, received, strict=True)):
                if index != group.index:
                    _store(parameters, part, values)

    def _start(
        self,
        parameters: Sequence[nn.Parameter],
        parts: Sequence[Sequence[Piece]],
        group: ShardedGroup,
        describe: Describe,
    ) -> tuple[Tensor, Any]:
        """Start an all-gather of parts; return the tensor [rank, element] for the result, and the work."""
        length = max(sum(piece.stop - piece.start for piece in part) for part in parts)
        example = next(parameters[piece.parameter] for part in parts for piece in part)
        own = torch.zeros(length, dtype=example.dtype, device=example.device)
        at = 0
        for piece in parts[group.index]:
            values = parameters[piece.parameter].reshape(-1)[piece.start : piece.stop]
            own[at : at + len(values)] = values
            at += len(values)
        received = torch.empty(len(parts) * length, dtype=own.dtype, device=own.device)
        with translate_errors(describe):
            work = dist.all_gather_into_tensor(received, own, group=group.group, async_op=True)
        return received.view(len(parts), length), work


def _store(parameters: Sequence[nn.Parameter], part: Sequence[Piece], values: Tensor) -> None:
    at = 0
    for piece in part:
        length = piece.stop - piece.start
        target = parameters[piece.parameter]
        if length == target.numel():
            target.copy_(values[at : at + length].view(target.shape))
        else:
            target.view(-1)[piece.start : piece.stop].copy_(values[at : at + length])
        at += length
