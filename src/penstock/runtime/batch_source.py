"""Batches that are the same on every rank, independent of other random numbers."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils import _pytree as pytree

from penstock.errors import InputError, MismatchError
from penstock.runtime.tensors import count_rows
from penstock.runtime.training_loop import Batch


def repeat_sample(sample: Batch, num_rows: int) -> Iterator[Batch]:
    """Yield one batch forever: the rows of a sample, repeated up to a number of rows.

    Args:
        sample: Inputs and targets.
        num_rows: Rows of the batch.
    """
    indices = torch.arange(num_rows) % count_rows(*sample)

    def tile(leaf: Any) -> Any:
        return leaf.detach()[indices.to(leaf.device)] if isinstance(leaf, Tensor) else leaf

    batch = pytree.tree_map(tile, sample)
    while True:
        yield batch


def with_own_rng(batches: Iterable[Any], seed: int) -> Iterator[Batch]:
    """Yield batches that are drawn from a random state of their own.

    Ranks draw different random numbers while they train. Batches must not depend on them.

    Args:
        batches: Pairs of inputs and targets.
        seed: Seed of torch's random state while batches are drawn.

    Raises:
        InputError: A batch is not a pair.
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
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise InputError(
                f"make_batches yielded a {type(batch).__name__}", hint="Yield pairs of inputs and targets."
            )
        yield batch[0], batch[1]


def check_same_batch(batch: Batch, step: int) -> None:
    """Check that all ranks have the same batch. Collective.

    Raises:
        MismatchError: They do not.
    """
    digests: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(digests, _digest(batch))
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
