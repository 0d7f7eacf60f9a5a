"""Measures the overhead of the runtime on this machine's CPU.

Two processes train a chain of tiny layers with several plans that differ only in their numbers of actions and messages.
The costs of an action and of a message follow from the CPU time of each plan.

Run as a program, this module is one of the two processes.
"""

import sys
from collections import deque
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Launcher, join_process_group, prepare_rank, run_dir, stderr_path
from penstock.errors import RunError
from penstock.plan import Origin, Plan, Stage, on
from penstock.profile import Overhead
from penstock.runtime import Pipeline
from penstock.runtime.tensors import pack
from penstock.runtime.transport import ProcessGroups, TorchTransport

NUM_UNITS = 8
NUM_MICROBATCHES = 8
WIDTH = 16
WARM_UP, ITERATIONS = 3, 12
LARGE_BYTES = 1 << 23
NUM_IN_FLIGHT = 6
NUM_LARGE = 6 * NUM_IN_FLIGHT
LIMIT_S = 60.0


class _Spent(msgspec.Struct, frozen=True):
    """CPU seconds of one of the two processes."""

    plans: tuple[float, ...]
    """Of an iteration with each plan."""
    large: float
    """Of the end of a large message."""


@cache
def measure_overhead(kind: str, num_threads: int) -> Overhead:
    """Measure the overhead for devices of this kind with `num_threads` threads. The result is cached.

    Raises:
        RunError: A process failed or did not finish in time.
    """
    with run_dir("penstock-overhead-") as folder, Launcher() as launcher:
        command = [sys.executable, "-m", "penstock.profiler.runtime_overhead", str(num_threads), str(folder)]
        launcher.start_ranks(command, 2, folder, stdout=folder / "stdout", stderr=partial(stderr_path, folder))
        if not launcher.wait(limit_s=LIMIT_S):
            raise RunError(f"the overhead measurement timed out after {LIMIT_S:g} s")
        failed = launcher.first_failed
        if failed is not None:
            lines = stderr_path(folder, failed.number).read_text(errors="replace").strip().splitlines()
            raise RunError((lines or [f"rank exited with code {failed.code}"])[-1])
        first, second = (msgspec.json.decode(_spent_path(folder, rank).read_bytes(), type=_Spent) for rank in range(2))
    job_s, message_s = solve_costs([sum(pair) for pair in zip(first.plans, second.plans, strict=True)])
    byte_s = max(first.large - message_s, 0.0) / LARGE_BYTES
    return Overhead(kind=kind, job_s=job_s, message_s=message_s, byte_s=byte_s)


def solve_costs(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the costs of an action and of a message end, from the CPU seconds of an iteration with each plan."""
    counts = np.array([(*count_jobs_and_messages(plan), 1) for plan in plans()], dtype=float)
    costs = np.linalg.lstsq(counts, np.array(seconds), rcond=None)[0]
    return max(float(costs[0]), 0.0), max(float(costs[1]), 0.0)


def count_jobs_and_messages(plan: Plan) -> tuple[int, int]:
    """Return the numbers of actions and of message ends of an iteration with one of these plans, on both ranks."""
    devices = [stage.forward[0].device for stage in plan.stages]
    crossings = sum(one != other for one, other in pairwise(devices))
    jobs = (3 if plan.split_backward else 2) * len(devices)
    return jobs * plan.num_microbatches, 2 * 2 * crossings * plan.num_microbatches


def plans() -> list[Plan]:
    """Return plans with few actions; many; many with split backward; many with a message between any two."""
    half = NUM_UNITS // 2
    apart, turns = ["r0"] * half + ["r1"] * half, ["r0", "r1"] * half
    return [
        _plan([(0, half, "r0"), (half, NUM_UNITS, "r1")]),
        _plan([(unit, unit + 1, device) for unit, device in enumerate(apart)]),
        _plan([(unit, unit + 1, device) for unit, device in enumerate(apart)], split=True),
        _plan([(unit, unit + 1, device) for unit, device in enumerate(turns)]),
    ]


def _plan(pieces: Sequence[tuple[int, int, str]], *, split: bool = False) -> Plan:
    return Plan(
        planner="overheads",
        schedule="gpipe",
        split_backward=split,
        num_microbatches=NUM_MICROBATCHES,
        micro_batch_size=1,
        profile=Origin(name="tiny", digest=""),
        cluster=Origin(name="here", digest=""),
        stages=tuple(
            Stage(start=start, stop=stop, forward=on(device), backward=on(device)) for start, stop, device in pieces
        ),
    )


def _loss(output: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(output, targets)


def _spent_s(plan: Plan) -> float:
    """Return the CPU seconds of this process in an iteration."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_UNITS)))
    pipe = Pipeline(model, plan, _loss, timeout_s=LIMIT_S)
    batch = torch.randn(NUM_MICROBATCHES, WIDTH)
    times = []
    for _ in range(WARM_UP + ITERATIONS):
        dist.barrier()
        start_s = process_time()
        pipe.step(batch, batch)
        times.append(process_time() - start_s)
    pipe.close()
    return median(times[WARM_UP:])


def _spent_on_large_s(rank: int) -> float:
    """Return the CPU seconds of the first process for sending a large message."""
    transport = TorchTransport(ProcessGroups(dist.new_group()), torch.device("cpu"), LIMIT_S)
    # Several messages in flight, so that source and target are not in the caches, as in training.
    messages = [pack(torch.zeros(LARGE_BYTES // 4))[0] for _ in range(NUM_IN_FLIGHT)]
    held: deque[Any] = deque(maxlen=NUM_IN_FLIGHT)
    times = []
    for number in range(NUM_LARGE):
        dist.barrier()
        start_s = process_time()
        if rank == 0:
            transport.send(messages[number % NUM_IN_FLIGHT], 1, 1, None, lambda: "sending")
        else:
            held.append(transport.irecv(0, 1, None, lambda: "receiving").wait())
        times.append(process_time() - start_s)
    held.clear()
    dist.barrier()
    transport.close()
    return median(times[NUM_LARGE // 4 :])


def _run_rank(num_threads: int, folder: Path) -> None:
    prepare_rank()
    torch.set_num_threads(num_threads)
    join_process_group("gloo", LIMIT_S)
    torch.manual_seed(0)
    rank = dist.get_rank()
    spent = _Spent(tuple(_spent_s(plan) for plan in plans()), _spent_on_large_s(rank))
    dist.destroy_process_group()
    _spent_path(folder, rank).write_bytes(msgspec.json.encode(spent))


def _spent_path(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.json"


if __name__ == "__main__":
    _run_rank(int(sys.argv[1]), Path(sys.argv[2]))
