"""Batches that are the same on every rank, independent of other random numbers."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError, MismatchError
from penstock.model import map_batch, plain_inputs, resized
from penstock.runtime.tensors import count_rows, has_rows
from penstock.runtime.training_loop import Batch


def repeat_sample(sample: Batch, num_rows: int) -> Iterator[Batch]:
    """Yield one batch forever: the rows of a sample, repeated up to a number of rows.

    Args:
        sample: Inputs and targets.
        num_rows: Rows of the batch.
    """
    num_own = count_rows(*sample)
    indices = torch.arange(num_rows) % num_own

    def tile(tensor: Tensor) -> Tensor:
        return tensor.detach()[indices.to(tensor.device)] if has_rows(tensor, num_own) else tensor

    batch: Batch = map_batch(sample, tile, lambda items: resized(items, num_rows))
    while True:
        yield batch


def with_own_rng(batches: Iterable[Any], seed: int, *, has_targets: bool = True) -> Iterator[Batch]:
    """Yield batches that are drawn from a random state of their own.

    Ranks draw different random numbers while they train. Batches must not depend on them.

    Args:
        batches: Pairs of inputs and targets. A mapping is a batch without targets.
        seed: Seed of torch's random state while batches are drawn.
        has_targets: False if the model computes its own loss: then every item is the inputs alone.

    Raises:
        InputError: A batch is none of these.
    """
    source = iter(batches)
    state = torch.Generator().manual_seed(seed).get_state()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            try:
                batch = next(source)
            except StopIteration:
                return
            state = torch.get_rng_state()
        yield _as_batch(batch, has_targets=has_targets)


def _as_batch(batch: Any, *, has_targets: bool) -> Batch:
    if isinstance(batch, Mapping) or (isinstance(batch, Tensor) and not has_targets):
        return plain_inputs(batch), None
    if isinstance(batch, tuple | list):
        if not has_targets:
            # A DataLoader yields lists. Positional arguments are a tuple.
            return plain_inputs(tuple(batch)), None
        if len(batch) == 2:
            return plain_inputs(batch[0]), plain_inputs(batch[1])
    size = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise InputError(
        f"make_batches yielded a {type(batch).__name__}{size}",
        hint="Yield pairs of inputs and targets, or dicts of inputs if the model computes its own loss.",
    )


def check_same_batch(batch: Batch, step: int) -> None:
    """Check that all ranks have the same batch. Collective.

    Raises:
        MismatchError: They do not.
    """
    own = _digest(batch)
    number = int(own[:15], 16)
    extremes = torch.tensor([number, -number])
    dist.all_reduce(extremes, op=dist.ReduceOp.MAX)
    if int(extremes.sum()) == 0:
        return
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, own)
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise MismatchError(
                f"rank 0 and rank {rank} have different batches in step {step}",
                hint="make_batches must yield the same batches on every rank: draw from torch or a seeded generator.",
            )


def _digest(batch: Batch) -> str:
    digest = hashlib.blake2b()
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor):
            digest.update(repr((tuple(leaf.shape), leaf.dtype)).encode())
            digest.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()
