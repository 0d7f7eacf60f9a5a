"""Functions that ranks run. Their first argument is a dictionary that the rank keeps between calls."""

import gc
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

import penstock
from benchmarks.runtime.contenders import Contender, PenstockPlan, TorchPlan, make_contender
from benchmarks.runtime.workloads import Workload
from penstock.profiler import measure, with_overheads
from penstock.runtime.tensors import pack
from penstock.runtime.transport import ProcessGroups, TorchTransport

NUM_CHECKED = 2
"""Iterations whose losses are compared."""

Memory = dict[str, Any]


def measure_profile(_memory: Memory, workload: Workload, seconds: float) -> penstock.Profile:
    """Profile the workload on both ranks at once, one thread each, as `penstock profile --busy-processes 1` does."""
    inputs, targets = workload.batch(0, 1)
    dist.barrier()
    return measure(
        workload.model(), inputs, workload.loss, targets=targets, seconds=seconds, steady=0.0, name=workload.name
    )


def add_overheads(_memory: Memory, profile: penstock.Profile, workload: Workload) -> penstock.Profile:
    """Add the runtime's overheads to a profile."""
    inputs, targets = workload.batch(0, 1)
    return with_overheads(profile, workload.model(), inputs, workload.loss, targets=targets)


def measure_messages(_memory: Memory, sizes: tuple[int, ...], repeats: int) -> list[float]:
    """Half the round-trip time over the runtime's transport, the minimum for each message size."""
    rank = dist.get_rank()
    if rank > 1:
        return []
    transport = TorchTransport(ProcessGroups(dist.new_group([0, 1])), torch.device("cpu"), 60.0)
    minima = []
    for tag, size in enumerate(sizes):
        packed = pack(torch.zeros(size, dtype=torch.uint8))[0]
        times = []
        for _ in range(repeats + 1):
            pending = transport.irecv(1 - rank, tag, size, _nothing)
            start_time = perf_counter()
            if rank == 0:
                transport.send(packed, 1, tag, size, _nothing)
            pending.wait()
            if rank == 1:
                transport.send(packed, 0, tag, size, _nothing)
            times.append((perf_counter() - start_time) / 2)
        # The first message also exchanges its shape.
        minima.append(min(times[1:]))
    transport.close()
    return minima


def _nothing() -> str:
    return "a message of the benchmark"


def build(
    memory: Memory, name: str, workload: Workload, num_microbatches: int, spec: PenstockPlan | TorchPlan | int
) -> list[float | None]:
    """Build a contender, keep it, and return the losses of its first iterations."""
    contender = make_contender(workload, num_microbatches, spec)
    losses = [contender.step(*workload.batch(step, num_microbatches)) for step in range(NUM_CHECKED)]
    memory[name] = contender
    return losses


def run(memory: Memory, name: str, workload: Workload, num_microbatches: int, steps: int, meet: bool) -> float:
    """The mean iteration time over consecutive iterations."""
    contender: Contender = memory[name]
    batch = workload.batch(0, num_microbatches)
    gc.collect()
    if meet:
        dist.barrier()
    start_time = perf_counter()
    for _ in range(steps):
        contender.step(*batch)
    return (perf_counter() - start_time) / steps


def drop(memory: Memory, name: str) -> None:
    """Delete a contender."""
    memory.pop(name, None)
    gc.collect()


def measured_timeline(memory: Memory, name: str, workload: Workload, num_microbatches: int) -> penstock.Timeline | None:
    """The measured timeline of one more iteration of Penstock, on rank 0."""
    contender = memory[name]
    contender.step(*workload.batch(0, num_microbatches))
    timeline: penstock.Timeline = contender.pipe.last_timeline()
    return timeline if dist.get_rank() == 0 else None


def try_out(memory: Memory, name: str, workload: Workload, num_microbatches: int, spec: TorchPlan) -> None:
    """Build a contender and warm it up."""
    memory[name] = contender = make_contender(workload, num_microbatches, spec)
    contender.step(*workload.batch(0, num_microbatches))
