"""What the runtime spends around a model's units on this machine's processor, found by running it.

Two processes train a chain of tiny layers by several plans that differ in how many jobs and messages they have, and in
nothing else. What a job and what a message costs follows from the processor time that each plan takes.

Run as a program, this file is one of the two processes.
"""

import json
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import RunError
from penstock.plan import Origin, Plan, Stage, on
from penstock.profile import Overhead
from penstock.runtime import Pipeline
from penstock.runtime.tensors import pack
from penstock.runtime.transport import Lanes, Mail

NUM_UNITS = 8
NUM_MICROBATCHES = 8
WIDTH = 16
WARM_UP, ITERATIONS = 3, 12
LARGE_BYTES = 1 << 23
NUM_IN_FLIGHT = 6
NUM_LARGE = 6 * NUM_IN_FLIGHT
LIMIT_S = 60.0


@cache
def measure_overhead(kind: str, num_threads: int) -> Overhead:
    """What devices of this kind, which use so many threads of the processor, spend. Found once in a process."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ended:
        command = [sys.executable, "-m", "penstock.profiler.runtime_overhead", f"{folder}/store", str(num_threads)]
        ranks = [
            ended.enter_context(
                subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
            for rank in range(2)
        ]
        for rank in ranks:
            ended.callback(rank.kill)
        try:
            told = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
        except subprocess.TimeoutExpired:
            raise RunError(f"two processes that run tiny jobs did not end within {LIMIT_S:g} s") from None
    for rank, (_, errors) in zip(ranks, told, strict=True):
        if rank.returncode:
            raise RunError((errors.strip().splitlines() or ["a process ended without a word"])[-1])
    first, second = (json.loads(text.splitlines()[-1]) for text, _ in told)
    job_s, message_s = solved([sum(pair) for pair in zip(first["plans"], second["plans"], strict=True)])
    byte_s = max(first["large"] - message_s, 0.0) / LARGE_BYTES
    return Overhead(kind=kind, job_s=job_s, message_s=message_s, byte_s=byte_s)


def solved(seconds: Sequence[float]) -> tuple[float, float]:
    """The price of a job and of an end of a message, from the processor seconds of an iteration by each plan."""
    counts = np.array([(*counts_of(plan), 1) for plan in plans()], dtype=float)
    found = np.linalg.lstsq(counts, np.array(seconds), rcond=None)[0]
    return max(float(found[0]), 0.0), max(float(found[1]), 0.0)


def counts_of(plan: Plan) -> tuple[int, int]:
    """The jobs and the ends of messages that an iteration by one of these plans has, on both ranks."""
    places = [stage.forward[0].device for stage in plan.stages]
    crossings = sum(one != other for one, other in pairwise(places))
    jobs = (3 if plan.split_backward else 2) * len(places)
    return jobs * plan.num_microbatches, 2 * 2 * crossings * plan.num_microbatches


def plans() -> list[Plan]:
    """Few jobs; many; many in two steps back; many with a message between any two."""
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
    """Processor seconds of this process in an iteration."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_UNITS)))
    pipe = Pipeline(model, plan, _loss, timeout_s=LIMIT_S)
    batch = torch.randn(NUM_MICROBATCHES, WIDTH)
    found = []
    for _ in range(WARM_UP + ITERATIONS):
        dist.barrier()
        began = process_time()
        pipe.step(batch, batch)
        found.append(process_time() - began)
    pipe.close()
    return median(found[WARM_UP:])


def _spent_on_large_s(rank: int) -> float:
    """Processor seconds of the first process for sending a large message."""
    mail = Mail(Lanes(dist.new_group()), torch.device("cpu"), LIMIT_S)
    # Many at a time, so that what is sent and where it goes are not in the caches any more: as in training.
    messages = [pack(torch.zeros(LARGE_BYTES // 4))[0] for _ in range(NUM_IN_FLIGHT)]
    held: deque[Any] = deque(maxlen=NUM_IN_FLIGHT)
    found = []
    for number in range(NUM_LARGE):
        dist.barrier()
        began = process_time()
        if rank == 0:
            mail.send(messages[number % NUM_IN_FLIGHT], 1, 1, None, lambda: "sending")
        else:
            held.append(mail.expect(0, 1, None, lambda: "receiving").wait())
        found.append(process_time() - began)
    held.clear()
    dist.barrier()
    mail.close()
    return median(found[NUM_LARGE // 4 :])


def _be_a_rank(store: Path, num_threads: int, rank: int) -> None:
    torch.set_num_threads(num_threads)
    meeting_place = dist.FileStore(str(store), 2)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=meeting_place, rank=rank, world_size=2, timeout=timedelta(seconds=LIMIT_S))
    torch.manual_seed(0)
    told = {"plans": [_spent_s(plan) for plan in plans()], "large": _spent_on_large_s(rank)}
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    _be_a_rank(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
