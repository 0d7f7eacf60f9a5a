"""Two processes that stay: all that is compared runs in the same two, one thread each."""

import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

LIMIT_S = 900.0
"""No single call takes so long."""
GROUP_LIMIT_S = 120.0
"""No message takes so long."""


class RankError(Exception):
    """Something failed on a rank."""


def serve(rank: int, size: int, line: Any, meeting: str) -> None:
    """What a process does: calls what it is given with a memory of its own, and says what came of it."""
    import torch
    import torch.distributed as dist

    from penstock import ProfileWarning

    # Narrow models run by profiles that nobody measured.
    warnings.simplefilter("ignore", ProfileWarning)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=GROUP_LIMIT_S),
    )
    memory: dict[str, Any] = {}
    while (job := line.recv()) is not None:
        function, given = job
        try:
            line.send((True, function(memory, *given)))
        except Exception as error:
            line.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    memory.clear()
    dist.destroy_process_group()


class Ranks:
    """So many ranks; leave the context to end them."""

    def __init__(self, size: int = 2) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        os.environ["OMP_NUM_THREADS"] = "1"
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        self._lines: list[Any] = []
        self._processes: list[Any] = []
        for rank in range(size):
            here, there = context.Pipe()
            meeting = str(Path(self._folder.name) / "meeting")
            process = context.Process(target=serve, args=(rank, size, there, meeting), daemon=True)
            process.start()
            there.close()
            self._lines.append(here)
            self._processes.append(process)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            with suppress(BrokenPipeError):
                line.send(None)
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
        self._folder.cleanup()

    def on_all(self, function: Callable[..., Any], *given: Any) -> list[Any]:
        """What the function gives on each rank, all at the same time."""
        return self._call(range(len(self._lines)), function, given)

    def on_first(self, function: Callable[..., Any], *given: Any) -> Any:
        """What it gives on rank 0, while the others sleep."""
        return self._call(range(1), function, given)[0]

    def _call(self, ranks: range, function: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
        for rank in ranks:
            self._lines[rank].send((function, given))
        answers = []
        for rank in ranks:
            if not self._lines[rank].poll(LIMIT_S):
                raise RankError(f"rank {rank} gave no answer to {function.__name__} within {LIMIT_S:g} s")
            try:
                answers.append(self._lines[rank].recv())
            except EOFError:
                self._processes[rank].join(5)
                code = self._processes[rank].exitcode
                raise RankError(f"rank {rank} ended in {function.__name__} with exit code {code}") from None
        failed = [f"rank {rank}: {found}" for rank, (well, found) in zip(ranks, answers, strict=True) if not well]
        if failed:
            raise RankError("\n".join(failed))
        return [found for _, found in answers]
