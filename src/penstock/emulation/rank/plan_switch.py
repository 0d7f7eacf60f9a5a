"""A change of plans between two steps: agreed by all ranks, and with the traffic that moving the state makes."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from penstock.dist import translate_errors, wait_for
from penstock.emulation.commands import StateMove, stop_path, switch_path
from penstock.emulation.rank.scratch import Scratch

STOP = -1
CHUNK = 64_000_000
"""Bytes of a message."""
FIRST_TAG = 1 << 20


class EmulatedSwitch(NamedTuple):
    """A change of plans, as rank 0 records it."""

    step: int
    """The first step with the new plan."""
    number: int
    seconds: float
    """Seconds of this machine, with the transfer of state."""
    num_bytes: float


class CommandReader:
    """Finds out, the same on all ranks, whether to change plans or to end before the next step.

    Args:
        folder: Where commands are written.
        rank: This rank. Only rank 0 looks.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self.number = 0
        """The number of the plan that runs."""

    def take(self, describe: str) -> int:
        """The number of the next plan, STOP, or 0: go on. Collective."""
        found = 0
        if self._rank == 0:
            if stop_path(self._folder).exists():
                found = STOP
            elif switch_path(self._folder, self.number + 1).exists():
                found = self.number + 1
        told = torch.tensor([found], dtype=torch.int64)
        with translate_errors(lambda: describe):
            dist.broadcast(told, 0)
        if int(told) > 0:
            self.number = int(told)
        return int(told)


def transfer_state(
    moves: Sequence[StateMove], devices: Sequence[str], rank: int, scratch: Scratch, timeout_s: float
) -> float:
    """Send and receive the state that changes places. Collective.

    Args:
        moves: What moves.
        devices: The devices of the ranks.
        rank: This rank.
        scratch: Memory for contents without meaning.
        timeout_s: Deadline of each message.

    Returns:
        Seconds until all ranks have what they need.
    """
    rank_of = {name: number for number, name in enumerate(devices)}
    describe = f"rank {rank}, moving state between plans"
    with translate_errors(lambda: describe):
        dist.barrier()
        began_s = time.perf_counter()
        works: list[Any] = []
        for index, move in enumerate(moves):
            source, target = rank_of[move.source], rank_of[move.target]
            if rank not in (source, target):
                continue
            start = partial(dist.isend, dst=target) if rank == source else partial(dist.irecv, src=source)
            left = int(move.num_bytes)
            while left > 0:
                size = min(left, CHUNK, scratch.num_bytes)
                works.append(start(scratch.rows(1, size), tag=FIRST_TAG + index))
                left -= size
    for work in works:
        wait_for(work, timeout_s, lambda: describe)
    with translate_errors(lambda: describe):
        dist.barrier()
    return time.perf_counter() - began_s
