"""One rank's start-up up to its first connection, in a process of its own. Prints seconds and megabytes as JSON."""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from benchmarks.accelerators.simulated_peers import SimulatedPeers, connections_of_all

WIDTH = 8
REPEATS = 20
MAX_CONNECTED = 256
"""Ranks whose connections are made in one process, each on a thread."""


def make_model(num_layers: int) -> nn.Module:
    """A chain of one small layer per rank."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(num_layers)))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def main(folder: Path, num_ranks: int) -> dict[str, float]:
    model, inputs = make_model(num_ranks), torch.zeros(1, WIDTH)
    began_s, began_mb = time.process_time(), _resident_mb()
    import penstock
    from penstock.program import SEND_KINDS
    from penstock.runtime.assembly.compilation import compile_program, validate
    from penstock.runtime.assembly.connection import host_pairs
    from penstock.runtime.checks import batch_check_pairs
    from penstock.runtime.layout import find_grad_owners, find_links, find_split_backwards
    from penstock.runtime.options import PipelineOptions
    from penstock.runtime.state import holders, state_entries, writers
    from penstock.runtime.transport.contact_rounds import contact_rounds

    plan = penstock.load_plan(folder / "plan.json")
    options = PipelineOptions(
        inputs=inputs,
        profile=penstock.load_profile(str(folder / "profile.json")),
        cluster=penstock.load_cluster(str(folder / "cluster.toml")),
        slices=folder / "slices",
    )
    validated = validate(model, plan, options)
    compiled = compile_program(validated, options)
    rank = num_ranks // 2
    program = compiled.slice_of(rank)
    actions, layout = list(program.actions()), compiled.layout
    find_grad_owners(layout, validated.blocks)
    find_split_backwards(program, layout)
    writers(state_entries(model), holders(validated.blocks, layout.stages))
    batch_check_pairs(program, layout, num_ranks, in_order=True)
    start_s, start_mb = time.process_time() - began_s, _resident_mb() - began_mb
    assert "proof" not in vars(compiled), "the rank must not lower the whole program"
    assert "numba" not in sys.modules
    steps = [_step_s(layout, actions, plan.num_microbatches, number) for number in range(REPEATS)]
    pairs = host_pairs(program, layout, num_ranks)
    links = find_links(program, layout, SEND_KINDS)
    messages = SimulatedPeers()
    return {
        "start_s": start_s,
        "start_mb": start_mb,
        "step_s": min(steps),
        "exchange_s": min(_exchange_s(program, layout, num_ranks, messages) for _ in range(REPEATS)),
        "num_messages": messages.num_sent,
        "num_rounds": len(contact_rounds(links)),
        "num_communicators": max(Counter(frozenset(link) for link in links).values()),
        "num_connections": connections_of_all(pairs, num_ranks) if num_ranks <= MAX_CONNECTED else 0,
        "num_pairs": len({frozenset(pair) for pair in pairs}),
        "max_connections": max(Counter(rank for pair in {frozenset(pair) for pair in pairs} for rank in pair).values()),
    }


def _exchange_s(program, layout, num_ranks: int, messages: Any) -> float:  # type: ignore[no-untyped-def]
    """Exchange batch shapes and the loss as the rank that computes the loss, which sends it to all."""
    from penstock.runtime.checks import BatchShapeCheck, batch_check_pairs
    from penstock.runtime.executor import Iteration, LossExchange

    rank = num_ranks - 1
    pairs = batch_check_pairs(program, layout, num_ranks, in_order=True)
    check = BatchShapeCheck(pairs, rank, messages, 1, HashStore(), "benchmark")
    losses = LossExchange(layout, rank, num_ranks, messages)
    batch = torch.zeros(layout.num_microbatches, WIDTH)
    rows = layout.rows(layout.num_microbatches)
    iteration = Iteration(0, batch, batch, len(batch), rows, ("step", "form"), torch.device("cpu"))
    check.begin(iteration)
    check.finish()
    messages.num_sent = 0
    began_s = time.process_time()
    check.begin(iteration)
    losses.open(iteration)
    losses.sender(iteration)(torch.ones(()))
    losses.collect(iteration)
    check.finish()
    return time.process_time() - began_s


def _step_s(layout, actions, num_microbatches: int, number: int) -> float:  # type: ignore[no-untyped-def]
    """Find the rows of each of the rank's actions, for a batch of a size that has not been seen."""
    began_s = time.process_time()
    rows = layout.rows(num_microbatches * (number + 1))
    for action in actions:
        if action.microbatch >= 0:
            rows[action.stage][action.microbatch]
    return time.process_time() - began_s


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
