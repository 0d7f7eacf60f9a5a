"""One rank of an emulation: the real executor, with stages that sleep."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from msgspec.structs import replace
from torch import nn

from penstock.dist import PeerExchange, translate_errors
from penstock.emulation.clock import DeviceClock, Lateness
from penstock.emulation.commands import read_switch
from penstock.emulation.rank.delayed_transport import DelayLine, WaitTimer, open_delayed_transport
from penstock.emulation.rank.device_pace import DevicePace
from penstock.emulation.rank.grad_reduce import EmulatedReducer, EmulatedSum
from penstock.emulation.rank.plan_switch import STOP, CommandReader, EmulatedSwitch, transfer_state
from penstock.emulation.rank.scratch import Scratch
from penstock.emulation.rank.sleeping_stage import ActionSeconds, SleepingStage, SleepingTransfer
from penstock.emulation.rank.tensor_sizes import GRID, is_sharded, num_numbers, reduced_bytes, sizes_of
from penstock.emulation.rank.weight_return import TimedWeightReturn
from penstock.emulation.spec import Emulation
from penstock.plan.pricing import Costs
from penstock.program.slices import slice_program
from penstock.runtime.executor import (
    Executor,
    ExecutorParts,
    Iteration,
    LossExchange,
    Routing,
    WeightReturn,
    gather_timeline,
)
from penstock.runtime.health import Heartbeat, RankStatus
from penstock.runtime.layout import Layout, find_split_backwards, make_layout, place_on_ranks
from penstock.runtime.tensors import signature
from penstock.runtime.transport import make_ring_groups
from penstock.timeline import Timeline

START_S = 0.05
"""Time for each rank between the announcement of an iteration's start and the start."""


class EmulatedIteration(NamedTuple):
    """One iteration, as rank 0 records it."""

    step: int
    timeline: Timeline
    """In seconds of this machine, not of the cluster."""
    lateness: tuple[Lateness, ...]
    """By rank."""
    busy: float
    """Fraction of this machine's processors that the ranks used."""


def run_rank(
    emulation: Emulation, rank: int, scratch: Scratch, on_step: Callable[[int], None], folder: Path
) -> Iterator[EmulatedIteration | EmulatedSwitch | None]:
    """Run the iterations of one rank, and the changes of plans that commands ask for.

    Args:
        emulation: The emulation.
        rank: This rank.
        scratch: The shared memory of all ranks.
        on_step: Called with the step before each iteration.
        folder: Where commands are written.

    Yields:
        The record of each iteration and of each change on rank 0; None on other ranks.
    """
    pace = DevicePace(emulation, emulation.devices[rank], rank)
    emulated = EmulatedRank(emulation, rank, scratch, pace)
    commands = CommandReader(folder, rank)
    for step in range(emulation.first_step, emulation.num_steps):
        number = commands.take(f"rank {rank}, before step {step}") if emulation.scenario is not None else 0
        if number == STOP:
            break
        if number:
            command = read_switch(folder, number)
            began_s = time.perf_counter()
            emulated.close()
            transfer_state(command.moves, emulation.devices, rank, scratch, emulation.timeout_s)
            emulation = replace(emulation, plan=command.plan, believed=command.believed)
            emulated = EmulatedRank(emulation, rank, scratch, pace)
            dist.barrier()
            seconds = time.perf_counter() - began_s
            num_bytes = sum(move.num_bytes for move in command.moves)
            yield None if rank else EmulatedSwitch(step, number, seconds, num_bytes)
        emulated.begin(step)
        on_step(step)
        yield emulated.iterate(step)
    emulated.close()
    dist.destroy_process_group()


class EmulatedRank:
    """The counterpart of a pipeline for devices that sleep.

    Args:
        emulation: The emulation.
        rank: This rank.
        scratch: The shared memory of all ranks.
        pace: How fast the device is at the moment.
    """

    def __init__(self, emulation: Emulation, rank: int, scratch: Scratch, pace: DevicePace) -> None:
        evaluation, cluster = emulation.evaluation, emulation.cluster
        costs, slow_down, is_shaped = evaluation.costs, emulation.slow_down, emulation.is_shaped
        self._proof, self._rank, self._pace = evaluation.proof, rank, pace
        plain, devices = make_layout(costs, ()), emulation.devices
        self._layout = layout = place_on_ranks(plain, [devices.index(name) for name in plain.devices])
        self._world = world = dist.get_world_size()
        self._group = group = dist.group.WORLD
        own = devices[rank] if devices[rank] in layout.devices else None
        device = cluster.index[devices[rank]]
        latency_s = cluster.latency_s[device]
        delay_s = {peer: slow_down * float(latency_s[cluster.index[name]]) for peer, name in enumerate(devices)}
        self._delays, timer = DelayLine(delay_s if is_shaped else {}), WaitTimer()
        self._transport = open_delayed_transport(group, emulation.timeout_s, self._delays, timer, scratch)
        self._clock = DeviceClock(lambda: timer.waited_until_s)
        self._clock.pace = pace
        factor = slow_down * emulation.faults.slowness(devices[rank])
        runners, self._step_s = _make_runners(emulation.costs, self._clock, device, factor, scratch)
        program = slice_program(self._proof.program, own)
        actions = list(program.actions())
        routing = Routing(layout, rank)
        parameters = {
            number: [nn.Parameter(scratch.numbers(sizes_of(costs, number).num_parameters))] for number in runners
        }
        # As if this rank trained all of them, so that received weights are not copied.
        trained = [item for items in parameters.values() for item in items]
        weight_return = WeightReturn(actions, parameters, trained, self._transport, routing)
        self._weight_return = TimedWeightReturn(weight_return, actions)
        sums, self._groups = _make_sums(costs, layout, rank, slow_down if is_shaped else 0.0, scratch)
        self._actions, self._reducer = actions, EmulatedReducer(sums, self._transport)
        parts = ExecutorParts(
            routing=routing,
            actions=actions,
            runners=runners,
            loss=_refuse_loss,
            transport=self._transport,
            reducer=self._reducer,
            weights=self._weight_return,
            transfer=SleepingTransfer(),
            check_recompute=_accept_recompute,
            split=find_split_backwards(program, layout),
            clock=self._clock,
        )
        self._executor = Executor(parts)
        self._exchange = PeerExchange(self._transport, rank, world)
        self._losses = LossExchange(layout, rank, world, self._transport)
        self._step = 0
        self._heartbeat = Heartbeat(group, layout.devices, self._status, self._transport.abandon)

    def _status(self) -> RankStatus:
        return self._executor.status(self._step)

    def begin(self, step: int) -> None:
        """Start a step. The status is written at once, because this rank may be killed in this step."""
        self._step = step
        self._heartbeat.beat_now()

    def iterate(self, step: int) -> EmulatedIteration | None:
        """Run one iteration, which all ranks start at the same time."""
        with self._heartbeat.guard(), translate_errors(lambda: f"rank {self._rank}, step {step}"):
            return self._iterate(step)

    def _iterate(self, step: int) -> EmulatedIteration | None:
        num_rows = GRID * self._layout.num_microbatches
        batch = torch.zeros(num_rows, 1, dtype=torch.uint8)
        form = ("emulate", *signature(batch, batch))
        iteration = Iteration(step, batch, batch, num_rows, self._layout.rows(num_rows), form, torch.device("cpu"))
        start_s = torch.tensor([time.perf_counter() + START_S * self._world], dtype=torch.float64)
        dist.broadcast(start_s, 0)
        self._pace.begin(step, float(start_s))
        self._clock.begin(float(start_s))
        began = time.process_time()
        self._executor.run(iteration, self._losses.sender(iteration))
        self._losses.collect(iteration)
        ready_s = time.perf_counter()
        self._clock.work(self._step_s)
        stepped_s = self._clock.take_span(ready_s) or (ready_s, ready_s)
        self._weight_return.start(step)
        self._reducer.gather(self._actions, lambda: f"rank {self._rank}, step {step}, gathering parameters")
        gathered_s = stepped_s[1], time.perf_counter()
        self._weight_return.finish_all()
        ended_s, used_s = time.perf_counter(), time.process_time() - began
        spans_s = self._executor.with_gathers(self._executor.spans_s(), gathered_s)
        spans_s = self._weight_return.insert_spans(spans_s)
        timeline = gather_timeline(
            lambda: self._proof, self._layout.devices, spans_s, stepped_s, self._group, self._exchange
        )
        records: list[Any] = [None] * self._world
        dist.all_gather_object(records, (self._clock.lateness, ended_s, used_s))
        if timeline is None:
            return None
        lateness, ends, used = zip(*records, strict=True)
        available_s = (max(ends) - float(start_s)) * (os.cpu_count() or 1)
        return EmulatedIteration(step, timeline, lateness, sum(used) / available_s)

    def close(self) -> None:
        """Block until everything that was sent has arrived."""
        self._delays.drain(self._transport.timeout_s)
        self._transport.close()
        self._heartbeat.close()
        for group in self._groups:
            if dist.get_rank(group) >= 0:
                dist.destroy_process_group(group)


def _make_runners(
    costs: Costs, clock: DeviceClock, device: int, factor: float, scratch: Scratch
) -> tuple[dict[int, SleepingStage], float]:
    """Return the stages of a device, and the duration of its optimizer step."""
    runners: dict[int, SleepingStage] = {}
    step_s = 0.0
    num_stages = costs.plan.num_stages
    for number in range(num_stages):
        seconds: dict[str, float] = {}
        for replica in range(*costs.replicas(number).indices(costs.num_replicas)):
            if costs.forward_device[replica] == device:
                seconds["forward_s"] = float(factor * costs.forward_s[replica])
            if costs.backward_device[replica] == device:
                seconds["recompute_s"] = float(factor * costs.recompute_s[replica])
                seconds["input_grad_s"] = float(factor * costs.input_grad_s[replica])
                seconds["weight_grad_s"] = float(factor * costs.weight_grad_s[replica])
                seconds["backward_s"] = float(factor * costs.backward_s[replica])
                step_s += float(factor * costs.step_s[replica])
        if seconds:
            runners[number] = SleepingStage(
                clock,
                ActionSeconds(**seconds),
                sizes_of(costs, number),
                scratch,
                is_first=number == 0,
                is_last=number + 1 == num_stages,
            )
    return runners, step_s


def _make_sums(
    costs: Costs, layout: Layout, rank: int, slow_down: float, scratch: Scratch
) -> tuple[dict[tuple[bool, int], EmulatedSum], list[Any]]:
    """Return the reductions of a rank, and the process groups that were made. Collective."""
    groups = make_ring_groups([item.ranks for item in layout.reducers], dist.new_group)
    # The layout lists ties before stages, the costs list them after.
    numbers = {(item.is_tie, item.number): index for index, item in enumerate(costs.reductions)}
    sums = {}
    for item, group in zip(layout.reducers, groups, strict=True):
        if rank in item.ranks:
            key = item.is_tie, item.number
            contents = scratch.numbers(num_numbers(reduced_bytes(costs, numbers[key])))
            latency_s = slow_down * costs.reductions[numbers[key]].ring.latency_s
            sums[key] = EmulatedSum(group, contents, latency_s, is_sharded(costs, numbers[key]))
    return sums, list({id(group): group for group in groups}.values())


def _refuse_loss(_output: Any, _targets: Any) -> torch.Tensor:
    raise AssertionError("a sleeping stage returns its own loss")


def _accept_recompute(*_arguments: Any) -> None:
    """Accept every recompute: sleeping stages have no buffers."""
