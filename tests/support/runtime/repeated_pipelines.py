"""Pipelines made and closed again and again in one process, and what the process holds after each."""

import gc
import resource
import threading
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline

WIDTH, NUM_ROWS = 512, 4096
"""Messages of 512 KiB and more go through shared memory."""


class Held(NamedTuple):
    """What a process holds."""

    descriptors: int
    threads: int
    python_threads: int
    mapped_bytes: int
    """Memory shared with other processes."""
    resident_bytes: int


def held() -> Held:
    gc.collect()
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:penstock" in line]
    sizes = [int(end, 16) - int(start, 16) for start, end in (words[0].split("-") for words in maps)]
    descriptors, threads = (len(list(Path("/proc/self", name).iterdir())) for name in ("fd", "task"))
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return Held(descriptors, threads, threading.active_count(), sum(sizes), resident)


def make_and_close(plan: Plan, count: int, measured_after: tuple[int, ...]) -> list[Held]:
    """Make, train one step with, and close pipelines; return what is held after some of them."""
    found = []
    for number in range(1, count + 1):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
        pipe = Pipeline(model, plan, nn.functional.mse_loss, timeout_s=60)
        pipe.step(torch.ones(NUM_ROWS, WIDTH), torch.zeros(NUM_ROWS, WIDTH))
        pipe.close()
        del pipe, model
        if number in measured_after:
            found.append(held())
    return found
