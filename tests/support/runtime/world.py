"""Processes that stay: each test gives them a function to run as the ranks of a group of any size up to theirs."""

import socket
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.support.runtime import message_order
from tests.support.runtime.forkserver import warm_context

MAX_RANKS = 4
LIMIT_S = 120


def serve(rank: int, line: Any, backend: str) -> None:
    """What a process does: runs what it is given, and says what came of it."""
    torch.set_num_threads(1)
    message_order.register()
    size = 0
    while (job := line.recv()) is not None:
        function, given, wanted, port = job
        try:
            if wanted != size:
                if size:
                    dist.destroy_process_group()
                size = wanted
                if size:
                    limit = timedelta(seconds=LIMIT_S)
                    dist.init_process_group(
                        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=limit
                    )
            line.send((True, function(*given)))
        except BaseException as error:
            line.send((False, (type(error).__name__, str(error), traceback.format_exc())))
    if size:
        dist.destroy_process_group()


class World:
    """Up to so many ranks."""

    def __init__(self, num_ranks: int = MAX_RANKS, backend: str = "gloo") -> None:
        context = warm_context()
        self._port = 0
        self._lines, self._processes = [], []
        for rank in range(num_ranks):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(rank, there, backend), daemon=True)
            process.start()
            there.close()
            self._lines.append(here)
            self._processes.append(process)
        self._size = 0

    def start(self, num_ranks: int, function: Callable[..., Any], *given: Any) -> None:
        """Let the first ranks run this."""
        if num_ranks != self._size:
            # A rank that was not of the last group has an older one still: all begin anew.
            self._port = free_port()
            self._size = num_ranks
            for line in self._lines[num_ranks:]:
                line.send((leave, (), 0, 0))
            for line in self._lines[num_ranks:]:
                line.recv()
        for line in self._lines[:num_ranks]:
            line.send((function, given, num_ranks, self._port))

    def outcomes(self, num_ranks: int) -> list[tuple[bool, Any]]:
        """Of each rank whether it went well, and what came of it."""
        return [self.outcome(rank) for rank in range(num_ranks)]

    def outcome(self, rank: int) -> tuple[bool, Any]:
        """The same of one rank; others may have been ended."""
        line = self._lines[rank]
        assert line.poll(LIMIT_S), f"rank {rank} does not answer"
        answer: tuple[bool, Any] = line.recv()
        return answer

    def run(self, num_ranks: int, function: Callable[..., Any], *given: Any) -> list[Any]:
        """What the function gives on each rank; it must go well on all."""
        self.start(num_ranks, function, *given)
        return results(self.outcomes(num_ranks))

    def close(self) -> None:
        for line in self._lines:
            with suppress(BrokenPipeError):
                line.send(None)
            line.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.terminate()


def results(outcomes: Sequence[tuple[bool, Any]]) -> list[Any]:
    failed = [f"rank {rank}: {found[2]}" for rank, (well, found) in enumerate(outcomes) if not well]
    assert not failed, "\n".join(failed)
    return [found for _, found in outcomes]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def leave() -> None:
    """Nothing: a rank that is not of a group."""
