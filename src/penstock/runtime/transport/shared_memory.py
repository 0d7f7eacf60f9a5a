"""Payloads in memory that two ranks of one host share.

The sender copies the tensors into a slab of memory, and sends the number of the slab in an ordinary small message, so
order, deadlines and lost peers are handled as for all messages. The receiver uses the slab in place. When the last
tensor in it is released, the slab's first byte is cleared, and the sender may fill the slab again. There are as many
slabs as messages in flight. Slabs have no name in the file system: the receiver opens them through the sender's
process, and they disappear with it.
"""

import mmap
import os
import secrets
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from penstock.device import is_accelerator
from penstock.runtime.tensors import TensorMeta

ALIGNMENT = 64
"""Tensors start at multiples of this, the first one behind the state byte."""
GRAIN = 1 << 16
"""Slab sizes are multiples of this."""
SHARED_MEMORY_MIN_BYTES = 1 << 19
"""Below this size an ordinary message is at least as fast (`benchmarks/runtime`, part `transfer`)."""
FREE, TAKEN = 0, 1
NO_SLAB = -1


def slab_offsets(forms: Sequence[TensorMeta]) -> tuple[list[int], int]:
    """Return where in a slab each tensor starts, and the size of all in bytes."""
    offsets, end = [], ALIGNMENT
    for meta in forms:
        offsets.append(end)
        end += -(-num_bytes(meta) // ALIGNMENT) * ALIGNMENT
    return offsets, end


def num_bytes(meta: TensorMeta) -> int:
    """Return the size of a tensor in bytes."""
    count = 1
    for size in meta.shape:
        count *= size
    return count * meta.dtype.itemsize


def uses_shared_memory(forms: Sequence[TensorMeta]) -> bool:
    """Return whether a payload is large enough for shared memory. Sender and receiver compute the same answer."""
    return sum(num_bytes(meta) for meta in forms) >= SHARED_MEMORY_MIN_BYTES


@dataclass(eq=False)
class Slab:
    """A piece of memory that both processes map."""

    file: int
    memory: mmap.mmap

    @property
    def is_free(self) -> bool:
        """Whether the receiver has released its contents."""
        return self.memory[0] == FREE


class OutgoingSlabs:
    """The slabs that this rank fills for one peer."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []

    @property
    def num_bytes(self) -> int:
        """Total size of the slabs."""
        return sum(len(slab.memory) for slab in self._slabs)

    def put(self, tensors: Sequence[Tensor], forms: Sequence[TensorMeta]) -> int:
        """Copy flat tensors into a slab. Return its number, or NO_SLAB if no memory is left."""
        offsets, size = slab_offsets(forms)
        # Small messages may use large slabs: the messages in flight together decide how much memory is needed.
        free = (slab for slab in self._slabs if slab.is_free and size <= len(slab.memory))
        slab = min(free, key=lambda slab: len(slab.memory), default=None)
        if slab is None:
            slab = _new_slab(size)
            if slab is None:
                return NO_SLAB
            self._slabs.append(slab)
        slab.memory[0] = TAKEN
        for tensor, offset in zip(tensors, offsets, strict=True):
            if tensor.numel():
                torch.frombuffer(slab.memory, dtype=tensor.dtype, count=tensor.numel(), offset=offset).copy_(tensor)
        return slab.file

    def close(self) -> None:
        """Give the memory back. What the peer still uses stays until it has released it."""
        for slab in self._slabs:
            os.close(slab.file)
        self._slabs.clear()


class IncomingSlabs:
    """The slabs that one peer, of a given process, fills for this rank."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._slabs: dict[int, mmap.mmap] = {}

    def take(self, number: int, forms: Sequence[TensorMeta]) -> list[Tensor]:
        """Return the tensors of a slab, without a copy."""
        if number not in self._slabs:
            self._slabs[number] = _open(self._process, number)
        memory = self._slabs[number]
        offsets, size = slab_offsets(forms)
        # The storage of every tensor holds a reference to the view, which is released with the last of them.
        view = memoryview(memory)[:size]
        weakref.finalize(view, _release, memory).atexit = False
        return [_tensor_at(view, offset, meta) for offset, meta in zip(offsets, forms, strict=True)]


def _tensor_at(view: memoryview, offset: int, meta: TensorMeta) -> Tensor:
    count = num_bytes(meta) // meta.dtype.itemsize
    if not count:
        return torch.empty(meta.shape, dtype=meta.dtype)
    flat = torch.frombuffer(view, dtype=meta.dtype, count=count, offset=offset)
    return flat.as_strided(meta.shape, meta.stride)


def _release(memory: mmap.mmap) -> None:
    memory[0] = FREE


def _new_slab(size: int) -> Slab | None:
    rounded = -(-size // GRAIN) * GRAIN
    file = os.memfd_create("penstock", os.MFD_CLOEXEC)
    try:
        # Without the reservation, a write to memory that is not available would kill the process.
        os.posix_fallocate(file, 0, rounded)
        return Slab(file, mmap.mmap(file, rounded))
    except OSError:
        os.close(file)
        return None


def _open(process: int, number: int) -> mmap.mmap:
    file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, os.fstat(file).st_size)
    finally:
        os.close(file)


def find_neighbours(group: Any, device: torch.device) -> dict[int, int]:
    """Return the ranks that share memory with this one, with their process ids. Collective."""
    probe, secret = NO_SLAB, secrets.token_bytes(16)
    if not is_accelerator(device) and hasattr(os, "memfd_create"):
        probe = os.memfd_create("penstock", os.MFD_CLOEXEC)
        os.write(probe, secret)
    offers: list[Any] = [None] * dist.get_world_size(group)
    network = _network()
    dist.all_gather_object(offers, (network, os.getpid(), probe, secret), group=group)
    readable = [item[0] == network and _can_read(*item[1:]) for item in offers]
    readable_by: list[Any] = [None] * len(offers)
    dist.all_gather_object(readable_by, readable, group=group)
    if probe != NO_SLAB:
        os.close(probe)
    own = dist.get_rank(group)
    return {
        rank: item[1]
        for rank, item in enumerate(offers)
        if rank != own and readable[rank] and readable_by[rank][own] and probe != NO_SLAB
    }


def _network() -> int:
    """Return the network namespace. Ranks in different ones count as on different hosts, as in an emulation."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def _can_read(process: int, number: int, secret: bytes) -> bool:
    """Return whether a process of this host can be read. Its id alone could belong to another process here."""
    if number == NO_SLAB:
        return False
    try:
        with _open(process, number) as memory:
            return memory[:] == secret
    except (OSError, ValueError):
        return False
