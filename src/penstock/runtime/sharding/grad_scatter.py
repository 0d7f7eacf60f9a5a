"""The reduce-scatter of a sharded stage's gradients.

Gloo has none that sends less than an all-reduce. So its ranks exchange parts (all-to-all), and each adds up its own, in
the order of gloo's all-reduce: the gradients are those of the unsharded step to the bit. NCCL and XCCL reduce-scatter
in an order of their own. With any other backend the ranks all-reduce, as without sharding, and each takes its part.
"""

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Describe, translate_errors
from penstock.runtime.sharding.bucket import Bucket
from penstock.runtime.sharding.optimizer_shards import ShardedGroup
from penstock.runtime.sharding.ring_order import sum_in_ring_order
from penstock.runtime.transport import Transport

REDUCE_SCATTER = frozenset({"nccl", "xccl"})
"""Backends with a reduce-scatter that sends less than an all-reduce."""


class GradScatter:
    """One reduction in progress.

    Behind the gradients of each part, one number for each parameter counts the ranks that have a gradient, as in an
    all-reduce. Afterwards only the parameters that this rank steps have gradients.
    """

    def __init__(
        self, sharded: ShardedGroup, transport: Transport, earlier: Mapping[nn.Parameter, Tensor], describe: Describe
    ) -> None:
        self._sharded = sharded
        self._transport = transport
        self._earlier = earlier
        self._describe = describe
        backend = dist.get_backend(sharded.group)
        self._is_gloo, self._is_scattered = backend == "gloo", backend in REDUCE_SCATTER
        self.ended_s = 0.0
        self._pending: list[tuple[Bucket, Tensor, Any]] = []
        for bucket in sharded.buckets:
            parts = self._parts(bucket) if self._is_gloo or self._is_scattered else self._whole(bucket)
            received = parts
            with translate_errors(describe):
                if self._is_gloo:
                    received = torch.empty_like(parts)
                    work = dist.all_to_all_single(received, parts, group=sharded.group, async_op=True)
                elif self._is_scattered:
                    received = parts.new_empty(len(parts) // len(bucket.ranks))
                    work = dist.reduce_scatter_tensor(received, parts, group=sharded.group, async_op=True)
                else:
                    work = dist.all_reduce(parts, group=sharded.group, async_op=True)
            # The work may still read the parts.
            self._pending.append((bucket, received, (work, parts)))

    def _parts(self, bucket: Bucket) -> Tensor:
        """The gradients and the counts for every rank, one behind the other, all of the same length."""
        grads, counts = self._take_grads(bucket)
        length = _length(bucket)
        values = []
        for number, part in enumerate(bucket.parts):
            num = bucket.bounds[number + 1] - bucket.bounds[number]
            values += [grads[piece.parameter][piece.start : piece.stop] for piece in part]
            values += [counts, counts.new_zeros(length - num - len(counts))]
        return torch.cat(values)

    def _whole(self, bucket: Bucket) -> Tensor:
        """All gradients and the counts, as in an all-reduce without sharding."""
        grads, counts = self._take_grads(bucket)
        return torch.cat([*grads, counts])

    def _take_grads(self, bucket: Bucket) -> tuple[list[Tensor], Tensor]:
        """The flat gradients, zeros where there is none, and which there are. The parameters have none afterwards."""
        parameters = self._sharded.layer_parameters(bucket)
        device = parameters[0].device
        grads = [
            torch.zeros(item.numel(), dtype=bucket.dtype, device=device) if item.grad is None else item.grad.reshape(-1)
            for item in parameters
        ]
        counts = torch.tensor([float(item.grad is not None) for item in parameters], dtype=bucket.dtype).to(device)
        for item in parameters:
            item.grad = None
        return grads, counts

    def finish(self) -> None:
        """Block until the sums have arrived, and add them to the gradients of earlier iterations."""
        index, owned = self._sharded.index, self._sharded.owned
        for bucket, received, (work, _) in self._pending:
            self._transport.wait_device(work, self._describe)
            first, last = bucket.bounds[index : index + 2]
            counts_end = last - first + len(bucket.names)
            if self._is_gloo:
                values = received.view(len(bucket.ranks), -1)
                total = sum_in_ring_order(values[:, : last - first], first, bucket.bounds[-1] + len(bucket.names))
                counts = values[:, last - first : counts_end].sum(0)
            elif self._is_scattered:
                total, counts = received[: last - first], received[last - first : counts_end]
            else:
                total, counts = received[first:last], received[bucket.bounds[-1] :]
            at, has_grad = 0, counts.tolist()
            for piece in bucket.parts[index]:
                item = owned[bucket.names[piece.parameter]]
                length = piece.stop - piece.start
                grad = total[at : at + length].view(item.shape) if has_grad[piece.parameter] else None
                at += length
                if grad is not None and item in self._earlier:
                    grad = self._earlier[item].add_(grad)
                item.grad = self._earlier.get(item) if grad is None else grad
        self._pending.clear()
        self.ended_s = perf_counter()


def _length(bucket: Bucket) -> int:
    """The elements that every rank gets: those of the longest part, and the counts."""
    return max(last - first for first, last in zip(bucket.bounds, bucket.bounds[1:], strict=False)) + len(bucket.names)
