"""Batches: the same ones on every rank, whatever else draws random numbers."""

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


def repeated(sample: Batch, num_rows: int) -> Iterator[Batch]:
    """One batch over and over: the rows of the sample, repeated until there are enough."""
    given = count_rows(*sample)
    picked = torch.arange(num_rows) % given

    def tile(leaf: Any) -> Any:
        return leaf.detach()[picked.to(leaf.device)] if isinstance(leaf, Tensor) else leaf

    batch = pytree.tree_map(tile, sample)
    while True:
        yield batch


def with_own_numbers(batches: Iterable[Any], seed: int) -> Iterator[Batch]:
    """The same batches, with a state of torch's random numbers of their own.

    Ranks draw differently while they train; batches that are drawn from the same state must not notice.
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
                f"make_batches gave a {type(batch).__name__}", hint="Every batch is a pair: inputs and targets."
            )
        yield batch[0], batch[1]


def check_same_batch(batch: Batch, step: int) -> None:
    """Refuse to train on batches that differ between ranks. Every rank must ask together."""
    mine = _digest(batch)
    everybody: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(everybody, mine)
    for rank, theirs in enumerate(everybody):
        if theirs != everybody[0]:
            raise MismatchError(
                f"at step {step} rank {rank} was given another batch than rank 0",
                hint="make_batches must give every rank the same: draw from torch, or from a generator with a seed.",
            )


def _digest(batch: Batch) -> str:
    found = hashlib.blake2b()
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Tensor):
            found.update(repr((tuple(leaf.shape), leaf.dtype)).encode())
            found.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            found.update(repr(leaf).encode())
    return found.hexdigest()
