"""One rank of an emulation: the runtime's parts put together around stages that sleep."""

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from penstock.dist import failing_in_words
from penstock.emulation.clock import DeviceClock, Lateness
from penstock.emulation.rank.delayed_transport import HeldMail
from penstock.emulation.rank.executor import EmulatedExecutor, Summed
from penstock.emulation.rank.scratch import Scratch
from penstock.emulation.rank.sleeping_stage import JobSeconds, SleepingStage
from penstock.emulation.rank.tensor_sizes import GRID, num_numbers, reduced_bytes, sizes_of
from penstock.emulation.rank.weight_return import TimedReturns
from penstock.emulation.spec import Emulation
from penstock.plan.pricing import Costs
from penstock.runtime.executor import Addresses, Iteration, Losses, gather_timeline
from penstock.runtime.health import Doing, Watch
from penstock.runtime.layout import Layout, make_layout, split_jobs
from penstock.runtime.tensors import signature
from penstock.runtime.transport import make_groups
from penstock.timeline import Timeline

START_S = 0.05
"""So long before an iteration begins all ranks know when."""


class Emulated(NamedTuple):
    """One iteration, as rank 0 puts it together."""

    step: int
    timeline: Timeline
    """In seconds here, not in those of the cluster."""
    lateness: tuple[Lateness, ...]
    """By rank."""
    busy: float
    """The share of this machine's processors that the ranks kept busy meanwhile."""


def join(rank: int, num_ranks: int, address: str, port: int, interface: str, timeout_s: float) -> None:
    """Meet the other ranks."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=timeout_s),
    )


def run_rank(
    emulation: Emulation, rank: int, scratch: Scratch, begins: Callable[[int], None]
) -> Iterator[Emulated | None]:
    """Run iterations; what came of each, on rank 0. `begins` is called when one begins."""
    rank_of = EmulatedRank(emulation, rank, scratch)
    for step in range(emulation.num_steps):
        rank_of.begin(step)
        begins(step)
        yield rank_of.iterate(step)
    rank_of.close()
    dist.destroy_process_group()


class EmulatedRank:
    """What a pipeline is to a training, for devices that sleep."""

    def __init__(self, emulation: Emulation, rank: int, scratch: Scratch) -> None:
        found = emulation.evaluation
        self._proof, self._rank = found.proof, rank
        costs = found.costs
        slow_down = emulation.slow_down
        self._layout = layout = make_layout(costs, ())
        self._world = world = dist.get_world_size()
        self._group = group = dist.group.WORLD
        me = costs.cluster.index[layout.devices[rank]]
        latency_s = costs.cluster.latency_s[me]
        hold_s = {
            peer: slow_down * float(latency_s[costs.cluster.index[name]]) for peer, name in enumerate(layout.devices)
        }
        shaped = emulation.is_shaped
        self._mail = HeldMail(group, emulation.timeout_s, hold_s if shaped else {}, scratch)
        self._clock = DeviceClock(lambda: self._mail.waited_until_s)
        factor = slow_down * emulation.faults.slowness(layout.devices[rank])
        self._runners, self._step_s = _runners(costs, self._clock, me, factor, scratch)
        actions = list(self._proof.program.actions(layout.devices[rank]))
        addresses = Addresses(layout, rank)
        summed = _summed(costs, layout, rank, slow_down if shaped else 0.0, scratch)
        returned = {
            number: [nn.Parameter(scratch.numbers(sizes_of(costs, number).num_parameters))] for number in self._runners
        }
        # As if they were trained here: what comes back is not copied anywhere.
        kept = [item for items in returned.values() for item in items]
        self._returns = TimedReturns(actions, returned, kept, self._mail, addresses)
        split = split_jobs(self._proof.program, layout.devices)
        self._executor = EmulatedExecutor(
            addresses,
            actions,
            self._runners,
            _no_loss,
            self._mail,
            {},
            self._returns.finish,
            split,
            summed=summed,
            clock=self._clock,
        )
        self._losses = Losses(layout, rank, world, self._mail)
        self._step = 0
        self._watch = Watch(group, layout.devices, self._doing, self._mail.sends.give_up)

    def _doing(self) -> Doing:
        return self._executor.doing(self._step)

    def begin(self, step: int) -> None:
        """A step begins. The others know at once: it may be this rank's last."""
        self._step = step
        self._watch.write_now()

    def iterate(self, step: int) -> Emulated | None:
        """One iteration, which all ranks begin at the same moment."""
        with self._watch.failing(), failing_in_words(lambda: f"rank {self._rank}, step {step}"):
            return self._iterate(step)

    def _iterate(self, step: int) -> Emulated | None:
        num_rows = GRID * self._layout.num_microbatches
        batch = torch.zeros(num_rows, 1, dtype=torch.uint8)
        form = ("emulate", *signature(batch, batch))
        iteration = Iteration(step, batch, batch, num_rows, self._layout.rows(num_rows), form, torch.device("cpu"))
        start_s = torch.tensor([time.perf_counter() + START_S * self._world], dtype=torch.float64)
        dist.broadcast(start_s, 0)
        self._clock.begin(float(start_s))
        began = time.process_time()
        self._executor.run(iteration, self._losses.sharing(iteration))
        self._losses.collect(iteration)
        ready_s = time.perf_counter()
        self._clock.work(self._step_s)
        stepped = self._clock.take_span(ready_s) or (ready_s, ready_s)
        self._returns.start(step)
        self._returns.finish_all()
        ended_s, spent_s = time.perf_counter(), time.process_time() - began
        spans_s = self._returns.put_into(self._executor.spans_s())
        timeline = gather_timeline(self._proof, self._layout.devices, spans_s, stepped, self._group)
        everybody: list[Any] = [None] * self._world
        dist.all_gather_object(everybody, (self._clock.lateness, ended_s, spent_s))
        if self._rank:
            return None
        lateness, ends, spent = zip(*everybody, strict=True)
        taken_s = (max(ends) - float(start_s)) * (os.cpu_count() or 1)
        return Emulated(step, timeline, lateness, sum(spent) / taken_s)

    def close(self) -> None:
        """Wait until everything that was sent has arrived."""
        self._mail.close()
        self._watch.close()


def _runners(
    costs: Costs, clock: DeviceClock, me: int, factor: float, scratch: Scratch
) -> tuple[dict[int, SleepingStage], float]:
    """The stages that a device has a part in, and how long its optimizer's step takes."""
    runners: dict[int, SleepingStage] = {}
    step_s = 0.0
    num_stages = costs.plan.num_stages
    for number in range(num_stages):
        seconds: dict[str, float] = {}
        for place in range(*costs.replicas(number).indices(costs.num_replicas)):
            if costs.forward_device[place] == me:
                seconds["forward_s"] = float(factor * costs.forward_s[place])
            if costs.backward_device[place] == me:
                seconds["recompute_s"] = float(factor * costs.recompute_s[place])
                seconds["input_grad_s"] = float(factor * costs.input_grad_s[place])
                seconds["weight_grad_s"] = float(factor * costs.weight_grad_s[place])
                seconds["backward_s"] = float(factor * costs.backward_s[place])
                step_s += float(factor * costs.step_s[place])
        if seconds:
            runners[number] = SleepingStage(
                clock,
                JobSeconds(**seconds),
                sizes_of(costs, number),
                scratch,
                is_first=number == 0,
                is_last=number + 1 == num_stages,
            )
    return runners, step_s


def _summed(
    costs: Costs, layout: Layout, rank: int, slow_down: float, scratch: Scratch
) -> dict[tuple[bool, int], Summed]:
    """The reductions that a rank takes part in; every rank must ask."""
    groups = make_groups([item.ranks for item in layout.reducers], dist.new_group)
    # The layout has ties before stages, the costs the other way round.
    numbers = {(item.is_tie, item.number): place for place, item in enumerate(costs.reductions)}
    found = {}
    for item, group in zip(layout.reducers, groups, strict=True):
        if rank in item.ranks:
            key = item.is_tie, item.number
            contents = scratch.numbers(num_numbers(reduced_bytes(costs, numbers[key])))
            found[key] = Summed(group, contents, slow_down * costs.reductions[numbers[key]].ring.latency_s)
    return found


def _no_loss(_output: Any, _targets: Any) -> torch.Tensor:
    raise AssertionError("sleeping stages make their own loss")
