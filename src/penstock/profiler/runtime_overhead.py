"""Measures the overhead of the runtime on this machine's CPU.

Two processes train a chain of tiny layers with several plans that differ only in their numbers of actions and messages.
The costs of an action and of a message follow from the CPU time of each plan. The measurement is repeated until two
results in a row agree: other work on the machine can make it meaningless.

Run as a program, this module is one of the two processes.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.dist import Launcher, RankModule, join_process_group, prepare_rank, run_dir, stderr_path
from penstock.errors import RunError
from penstock.plan import Origin, Plan, Stage, on
from penstock.runtime import Pipeline
from penstock.runtime.tensors import pack
from penstock.runtime.transport import ProcessGroups, TorchTransport

NUM_UNITS = 8
NUM_MICROBATCHES = 8
WIDTH = 16
WARM_UP, ITERATIONS = 3, 10
LARGE_BYTES = 1 << 23
NUM_IN_FLIGHT = 6
NUM_LARGE = 2 * NUM_IN_FLIGHT
MAX_ATTEMPTS = 6
AGREEMENT = 0.25
"""The largest relative difference of two results that agree."""
LIMIT_S = 60.0


class Costs(msgspec.Struct, frozen=True):
    """CPU seconds of an action, of an end of a message, and of a byte sent."""

    job_s: float
    message_s: float
    byte_s: float

    def agrees(self, other: "Costs") -> bool:
        """Whether two results are positive and close to each other."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return all(min(pair) > 0 and max(pair) <= (1 + AGREEMENT) * min(pair) for pair in pairs)


class Spent(NamedTuple):
    """CPU seconds of both processes in one attempt."""

    plans: tuple[float, ...]
    """Of an iteration with each plan."""
    large: float
    """Of sending a large message."""

    def costs(self) -> Costs:
        """The costs that explain these seconds. On a busy machine they may be negative."""
        job_s, message_s = solve_costs(self.plans)
        return Costs(job_s, message_s, (self.large - max(message_s, 0.0)) / LARGE_BYTES)

    def bounds(self) -> Costs:
        """Costs that each explain all of these seconds."""
        jobs, ends = zip(*map(count_jobs_and_messages, plans()), strict=True)
        most = [min(spent / count for spent, count in zip(self.plans, some, strict=True)) for some in (jobs, ends)]
        return Costs(most[0], most[1], self.large / LARGE_BYTES)


class MeasuredOverhead(msgspec.Struct, frozen=True):
    """Costs of the runtime."""

    costs: Costs
    is_steady: bool
    """Whether two results agree. Otherwise the costs are upper bounds."""


def measure_overhead(num_threads: int) -> MeasuredOverhead:
    """Measure the overhead of processes with `num_threads` threads.

    Raises:
        RunError: A process failed or did not finish in time.
    """
    with run_dir("penstock-overhead-") as folder, Launcher() as launcher:
        arguments = [str(num_threads), str(folder)]
        module = RankModule("penstock.profiler.runtime_overhead", arguments, ("penstock.runtime",))
        launcher.start_ranks(module, 2, folder, stdout=folder / "stdout", stderr=partial(stderr_path, folder))
        if not launcher.wait(limit_s=LIMIT_S):
            raise RunError(f"the overhead measurement timed out after {LIMIT_S:g} s")
        failed = launcher.first_failed
        if failed is not None:
            lines = stderr_path(folder, failed.number).read_text(errors="replace").strip().splitlines()
            raise RunError((lines or [f"rank exited with code {failed.code}"])[-1])
        return msgspec.json.decode(_result_path(folder).read_bytes(), type=MeasuredOverhead)


def measure_until_steady(attempt: Callable[[], Spent]) -> MeasuredOverhead:
    """Repeat an attempt until two results in a row agree. Return their mean, or the lowest upper bounds."""
    attempts: list[Spent] = []
    while len(attempts) < MAX_ATTEMPTS:
        attempts.append(attempt())
        if len(attempts) > 1 and attempts[-1].costs().agrees(attempts[-2].costs()):
            return MeasuredOverhead(_combine(lambda pair: sum(pair) / 2, [it.costs() for it in attempts[-2:]]), True)
    return MeasuredOverhead(_combine(min, [it.bounds() for it in attempts]), False)


def _combine(how: Callable[[Sequence[float]], float], several: Sequence[Costs]) -> Costs:
    return Costs(*(how(values) for values in zip(*map(msgspec.structs.astuple, several), strict=True)))


def solve_costs(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the costs of an action and of a message end, from the CPU seconds of an iteration with each plan."""
    counts = np.array([(*count_jobs_and_messages(plan), 1) for plan in plans()], dtype=float)
    costs = np.linalg.lstsq(counts, np.array(seconds), rcond=None)[0]
    return float(costs[0]), float(costs[1])


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


def _make_pipeline(plan: Plan) -> Pipeline:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_UNITS)))
    return Pipeline(model, plan, _loss, timeout_s=LIMIT_S)


def _spent_s(pipe: Pipeline, num_iterations: int) -> float:
    """Return the CPU seconds of this process in an iteration."""
    batch = torch.randn(NUM_MICROBATCHES, WIDTH)
    times = []
    for _ in range(num_iterations):
        dist.barrier()
        start_s = process_time()
        pipe.step(batch, batch)
        times.append(process_time() - start_s)
    return median(times)


class _LargeMessages:
    """Large messages from the first process to the second."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._transport = TorchTransport(ProcessGroups(dist.new_group()), torch.device("cpu"), LIMIT_S)
        # Several messages in flight, so that source and target are not in the caches, as in training.
        self._messages = [pack(torch.zeros(LARGE_BYTES // 4))[0] for _ in range(NUM_IN_FLIGHT)]
        self._held: deque[Any] = deque(maxlen=NUM_IN_FLIGHT)

    def spent_s(self) -> float:
        """Return the CPU seconds of this process for its end of a message."""
        times = []
        for number in range(NUM_LARGE):
            dist.barrier()
            start_s = process_time()
            if self._rank == 0:
                self._transport.send(self._messages[number % NUM_IN_FLIGHT], 1, 1, None, lambda: "sending")
            else:
                self._held.append(self._transport.irecv(0, 1, None, lambda: "receiving").wait())
            times.append(process_time() - start_s)
        return median(times[NUM_IN_FLIGHT // 2 :])

    def close(self) -> None:
        self._held.clear()
        dist.barrier()
        self._transport.close()


def _run_rank(num_threads: int, folder: Path) -> None:
    prepare_rank()
    torch.set_num_threads(num_threads)
    join_process_group("gloo", LIMIT_S)
    torch.manual_seed(0)
    rank = dist.get_rank()
    pipes, large = [_make_pipeline(plan) for plan in plans()], _LargeMessages(rank)
    for pipe in pipes:
        _spent_s(pipe, WARM_UP)
    large.spent_s()

    def attempt() -> Spent:
        own = [*(_spent_s(pipe, ITERATIONS) for pipe in pipes), large.spent_s()]
        own[-1] *= rank == 0  # the message's cost is that of its sender
        both = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(both)  # with equal numbers, both processes end after the same attempt
        *seconds, large_s = both.tolist()
        return Spent(tuple(seconds), large_s)

    measured = measure_until_steady(attempt)
    large.close()
    for pipe in pipes:
        pipe.close()
    dist.destroy_process_group()
    if rank == 0:
        _result_path(folder).write_bytes(msgspec.json.encode(measured))


def _result_path(folder: Path) -> Path:
    return folder / "result.json"


if __name__ == "__main__":
    _run_rank(int(sys.argv[1]), Path(sys.argv[2]))
