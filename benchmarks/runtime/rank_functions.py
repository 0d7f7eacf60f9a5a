"""What ranks are told to do. The first argument of each function is the memory of the rank."""

import gc
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

import penstock
from benchmarks.runtime.contenders import Contender, OurPlan, TorchPlan, make_contender
from benchmarks.runtime.workloads import Subject
from penstock.profiler import measure, with_overheads
from penstock.runtime.tensors import pack
from penstock.runtime.transport import ProcessGroups, TorchTransport

NUM_CHECKED = 2
"""Iterations whose losses are compared."""

Memory = dict[str, Any]


def measure_profile(_memory: Memory, subject: Subject, seconds: float) -> penstock.Profile:
    """As `penstock profile --busy-processes 1` does: both ranks at the same time, one thread each, for so long."""
    inputs, targets = subject.batch(0, 1)
    dist.barrier()
    return measure(
        subject.model(), inputs, subject.loss, targets=targets, seconds=seconds, steady=0.0, name=subject.name
    )


def add_overheads(_memory: Memory, profile: penstock.Profile, subject: Subject) -> penstock.Profile:
    """What the runtime spends around units."""
    inputs, targets = subject.batch(0, 1)
    return with_overheads(profile, subject.model(), inputs, subject.loss, targets=targets)


def measure_messages(_memory: Memory, sizes: tuple[int, ...], repeats: int) -> list[float]:
    """Half the seconds of a message there and back, by the runtime's own mail: the least for each number of bytes."""
    rank = dist.get_rank()
    if rank > 1:
        return []
    transport = TorchTransport(ProcessGroups(dist.new_group([0, 1])), torch.device("cpu"), 60.0)
    found = []
    for tag, size in enumerate(sizes):
        packed = pack(torch.zeros(size, dtype=torch.uint8))[0]
        taken = []
        for _ in range(repeats + 1):
            pending = transport.irecv(1 - rank, tag, size, _nothing)
            began = perf_counter()
            if rank == 0:
                transport.send(packed, 1, tag, size, _nothing)
            pending.wait()
            if rank == 1:
                transport.send(packed, 0, tag, size, _nothing)
            taken.append((perf_counter() - began) / 2)
        # The first one also tells its form.
        found.append(min(taken[1:]))
    transport.close()
    return found


def _nothing() -> str:
    return "a message of the benchmark"


def build(
    memory: Memory, name: str, subject: Subject, num_microbatches: int, given: OurPlan | TorchPlan | int
) -> list[float | None]:
    """Make a contender, train the first iterations and keep it; their losses."""
    contender = make_contender(subject, num_microbatches, given)
    losses = [contender.step(*subject.batch(step, num_microbatches)) for step in range(NUM_CHECKED)]
    memory[name] = contender
    return losses


def run(memory: Memory, name: str, subject: Subject, num_microbatches: int, steps: int, meet: bool) -> float:
    """The seconds of an iteration, over several without a break."""
    contender: Contender = memory[name]
    batch = subject.batch(0, num_microbatches)
    gc.collect()
    if meet:
        dist.barrier()
    began = perf_counter()
    for _ in range(steps):
        contender.step(*batch)
    return (perf_counter() - began) / steps


def drop(memory: Memory, name: str) -> None:
    """Let go of a contender."""
    memory.pop(name, None)
    gc.collect()


def measured_timeline(memory: Memory, name: str, subject: Subject, num_microbatches: int) -> penstock.Timeline | None:
    """What happened when in one more iteration of ours; from rank 0."""
    contender = memory[name]
    contender.step(*subject.batch(0, num_microbatches))
    timeline: penstock.Timeline = contender.pipe.last_timeline()
    return timeline if dist.get_rank() == 0 else None


def try_out(memory: Memory, name: str, subject: Subject, num_microbatches: int, given: TorchPlan) -> None:
    """Make a contender and let it warm up."""
    memory[name] = contender = make_contender(subject, num_microbatches, given)
    contender.step(*subject.batch(0, num_microbatches))
