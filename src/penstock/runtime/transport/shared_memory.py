"""Tensors handed over in memory that two ranks of one host share.

The sender copies what it sends into a slab of memory, and tells the receiver by an ordinary small message which slab
it is: so order, deadlines and lost peers are as for all messages. The receiver uses the slab in place; when the last
tensor in it is let go of, its first byte says so, and the sender may fill it again. There are as many slabs as messages
in flight. They have no name in the file system: the receiver opens them through the sender's process, and they go with
it.
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

from penstock.runtime.tensors import TensorForm

ALIGNMENT = 64
"""Tensors begin at multiples of this, the first behind the byte of state."""
GRAIN = 1 << 16
"""Sizes of slabs are multiples of this."""
WORTHWHILE_BYTES = 1 << 19
"""Below this an ordinary message is as fast, or faster (`benchmarks/runtime`, part handing)."""
FREE, TAKEN = 0, 1
NO_SLAB = -1


def places(forms: Sequence[TensorForm]) -> tuple[list[int], int]:
    """Where in a slab each tensor begins, and how many bytes that takes."""
    found, end = [], ALIGNMENT
    for form in forms:
        found.append(end)
        end += -(-num_bytes(form) // ALIGNMENT) * ALIGNMENT
    return found, end


def num_bytes(form: TensorForm) -> int:
    """The bytes of a tensor."""
    count = 1
    for size in form.shape:
        count *= size
    return count * form.dtype.itemsize


def is_worthwhile(forms: Sequence[TensorForm]) -> bool:
    """Whether these tensors are better handed over in shared memory; both sides must come to the same answer."""
    return sum(num_bytes(form) for form in forms) >= WORTHWHILE_BYTES


@dataclass(eq=False)
class Slab:
    """A piece of memory that both map."""

    file: int
    memory: mmap.mmap

    @property
    def is_free(self) -> bool:
        """Whether nobody uses what is in it."""
        return self.memory[0] == FREE


class Outgoing:
    """The slabs that one rank fills for another."""

    def __init__(self) -> None:
        self._slabs: list[Slab] = []

    @property
    def num_bytes(self) -> int:
        """How large they are together."""
        return sum(len(slab.memory) for slab in self._slabs)

    def put(self, tensors: Sequence[Tensor], forms: Sequence[TensorForm]) -> int:
        """Copy tensors, as runs of numbers, into a slab; its number, or NO_SLAB if there is no memory for it."""
        starts, size = places(forms)
        # Small messages may take the place of large ones: what is in flight together decides how much memory there is.
        free = (slab for slab in self._slabs if slab.is_free and size <= len(slab.memory))
        slab = min(free, key=lambda slab: len(slab.memory), default=None)
        if slab is None:
            slab = _new_slab(size)
            if slab is None:
                return NO_SLAB
            self._slabs.append(slab)
        slab.memory[0] = TAKEN
        for tensor, start in zip(tensors, starts, strict=True):
            if tensor.numel():
                torch.frombuffer(slab.memory, dtype=tensor.dtype, count=tensor.numel(), offset=start).copy_(tensor)
        return slab.file


class Incoming:
    """The slabs that another rank, of that process, fills for this one."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._slabs: dict[int, mmap.mmap] = {}

    def take(self, number: int, forms: Sequence[TensorForm]) -> list[Tensor]:
        """The tensors in a slab, where they are."""
        if number not in self._slabs:
            self._slabs[number] = _open(self._process, number)
        memory = self._slabs[number]
        starts, size = places(forms)
        # Every tensor's memory holds on to the view, so that goes with the last of them.
        view = memoryview(memory)[:size]
        weakref.finalize(view, _let_go, memory).atexit = False
        return [_tensor_at(view, start, form) for start, form in zip(starts, forms, strict=True)]


def _tensor_at(view: memoryview, start: int, form: TensorForm) -> Tensor:
    count = num_bytes(form) // form.dtype.itemsize
    if not count:
        return torch.empty(form.shape, dtype=form.dtype)
    flat = torch.frombuffer(view, dtype=form.dtype, count=count, offset=start)
    return flat.as_strided(form.shape, form.stride)


def _let_go(memory: mmap.mmap) -> None:
    memory[0] = FREE


def _new_slab(size: int) -> Slab | None:
    rounded = -(-size // GRAIN) * GRAIN
    file = os.memfd_create("penstock", os.MFD_CLOEXEC)
    try:
        # Memory that is promised but not there would end the process when it is written to.
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
    """The ranks that this one can hand memory to and take it from, with their processes. Every rank must ask."""
    mine, secret = NO_SLAB, secrets.token_bytes(16)
    if device.type == "cpu" and hasattr(os, "memfd_create"):
        mine = os.memfd_create("penstock", os.MFD_CLOEXEC)
        os.write(mine, secret)
    everybody: list[Any] = [None] * dist.get_world_size(group)
    here = _network()
    dist.all_gather_object(everybody, (here, os.getpid(), mine, secret), group=group)
    reached = [item[0] == here and _reads(*item[1:]) for item in everybody]
    who_reaches: list[Any] = [None] * len(everybody)
    dist.all_gather_object(who_reaches, reached, group=group)
    if mine != NO_SLAB:
        os.close(mine)
    me = dist.get_rank(group)
    return {
        rank: item[1]
        for rank, item in enumerate(everybody)
        if rank != me and reached[rank] and who_reaches[rank][me] and mine != NO_SLAB
    }


def _network() -> int:
    """Ranks that see different networks are as good as on different hosts, though they may share a machine."""
    try:
        return Path("/proc/self/ns/net").stat().st_ino
    except OSError:
        return 0


def _reads(process: int, number: int, secret: bytes) -> bool:
    """Whether that process is one of this host, and lets itself be read: number alone may be that of another one."""
    if number == NO_SLAB:
        return False
    try:
        with _open(process, number) as memory:
            return memory[:] == secret
    except (OSError, ValueError):
        return False
