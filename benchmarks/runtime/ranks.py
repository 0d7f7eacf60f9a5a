"""Rank processes that stay: all contenders run in the same two, with one thread each."""

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
"""The deadline of a call."""
GROUP_LIMIT_S = 120.0
"""The deadline of an operation of the process group."""


class RankError(Exception):
    """A call failed on a rank."""


def serve(rank: int, size: int, line: Any, store_file: str) -> None:
    """The main function of a rank: calls functions with the rank's dictionary and returns their results."""
    import torch
    import torch.distributed as dist

    from penstock import ProfileWarning

    # Narrow models run with placeholder profiles.
    warnings.simplefilter("ignore", ProfileWarning)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store_file}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=GROUP_LIMIT_S),
    )
    memory: dict[str, Any] = {}
    while (job := line.recv()) is not None:
        function, arguments = job
        try:
            line.send((True, function(memory, *arguments)))
        except Exception as error:
            line.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    memory.clear()
    dist.destroy_process_group()


class Ranks:
    """Rank processes; leaving the context ends them."""

    def __init__(self, size: int = 2) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        os.environ["OMP_NUM_THREADS"] = "1"
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        self._lines: list[Any] = []
        self._processes: list[Any] = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            store_file = str(Path(self._folder.name) / "meeting")
            process = context.Process(target=serve, args=(rank, size, theirs, store_file), daemon=True)
            process.start()
            theirs.close()
            self._lines.append(ours)
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

    def on_all(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function on all ranks at the same time; returns a result per rank."""
        return self._call(range(len(self._lines)), function, arguments)

    def on_first(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on rank 0 while the others are idle."""
        return self._call(range(1), function, arguments)[0]

    def _call(self, ranks: range, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Any]:
        for rank in ranks:
            self._lines[rank].send((function, arguments))
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
        failed = [
            f"rank {rank}: {value}" for rank, (succeeded, value) in zip(ranks, answers, strict=True) if not succeeded
        ]
        if failed:
            raise RankError("\n".join(failed))
        return [value for _, value in answers]
