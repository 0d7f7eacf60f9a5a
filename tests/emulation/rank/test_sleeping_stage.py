"""Sleeping stages: how long each action takes, and the sizes of what they pass on."""

import pytest
import torch

from penstock.emulation.clock import DeviceClock
from penstock.emulation.rank.rank import _make_runners
from penstock.emulation.rank.scratch import Scratch, largest_payload
from penstock.emulation.rank.sleeping_stage import ActionSeconds, SleepingStage, SleepingTransfer
from penstock.emulation.rank.tensor_sizes import GRID, StageSizes, num_numbers, reduced_bytes, sizes_of
from penstock.runtime.remote_backward import make_recompute_message
from penstock.runtime.stage import StageJob
from penstock.runtime.tensors import Rows, pack
from tests.support.small_emulation import small

SECONDS = ActionSeconds(1.0, 2.0, 4.0, 8.0, 16.0)
SIZES = StageSizes(input_width=5, output_width=7, kept_width=11, num_parameters=3)
ROWS = Rows(10, 13)
NOTHING = pack([])[0]


class Clock(DeviceClock):
    """Adds up what it is asked to sleep, without sleeping."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.total_s = 0.0

    def work(self, seconds: float) -> None:
        self.total_s += seconds

    def take(self) -> float:
        total_s, self.total_s = self.total_s, 0.0
        return total_s


def stage(clock: Clock, *, is_first: bool = False, is_last: bool = False) -> SleepingStage:
    scratch = Scratch(largest_payload(small().evaluation.costs))
    return SleepingStage(clock, SECONDS, SIZES, scratch, is_first=is_first, is_last=is_last)


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_actions_of_a_stage(defer: bool, is_first: bool) -> None:
    clock = Clock()
    runner = stage(clock, is_first=is_first)
    out, graph = runner.run(NOTHING, 0, ROWS, None, keep=True, defer=defer)
    assert clock.take() == SECONDS.forward_s
    assert [tuple(item.shape) for item in out.tensors] == [(3, 7)]
    assert graph.loss_grads == []
    assert runner.buffers() == runner.buffer_versions() == []
    grads = runner.backward(graph, [])
    assert clock.take() == (SECONDS.input_grad_s if defer else SECONDS.backward_s)
    assert [None if item is None else tuple(item.shape) for item in grads] == ([] if is_first else [(3, 5)])
    runner.backward_weight(graph)
    assert clock.take() == SECONDS.weight_grad_s
    again = runner.recompute(ROWS, defer=defer)
    assert clock.take() == SECONDS.recompute_s
    assert (again.num_rows, again.is_split) == (graph.num_rows, graph.is_split) == (3, defer)
    assert tuple(runner.evaluate(NOTHING, 0, ROWS, None).tensors[0].shape) == (3, 7)
    assert clock.take() == SECONDS.forward_s


def test_the_last_stage_returns_a_loss() -> None:
    runner = stage(Clock(), is_last=True)
    out, graph = runner.run(NOTHING, 0, ROWS, None, keep=True, defer=False)
    assert [tuple(item.shape) for item in out.tensors] == [()]
    assert [tuple(item.shape) for item in graph.loss_grads] == [()]


@pytest.mark.parametrize("defer", [False, True])
def test_a_remote_backward_gets_what_the_forward_saves(defer: bool) -> None:
    clock, transfer = Clock(), SleepingTransfer()
    runner = stage(clock)
    job = StageJob(1, 0, ROWS, None, defer, ("form",), [])
    assert transfer.reason(runner, NOTHING, job) == ""
    out, saved = transfer.run(runner, NOTHING, job, "0F0")
    assert clock.take() == SECONDS.forward_s
    assert tuple(out.tensors[0].shape) == (3, 7)
    assert [tuple(item.shape) for item in saved.tensors] == [(3, 11)]
    graph = transfer.graph(runner, saved, job, None)
    assert clock.take() == 0
    assert (graph.num_rows, graph.is_split) == (3, defer)
    # A message that asks for a recompute takes that long.
    graph = transfer.graph(runner, make_recompute_message(out, "", []), job, None)
    assert clock.take() == SECONDS.recompute_s
    assert (graph.num_rows, graph.is_split) == (3, defer)


FORWARD = {"forward_s": 0.02}
BACKWARD = {"recompute_s": 0.02, "input_grad_s": 0.01, "weight_grad_s": 0.01, "backward_s": 0.02}


@pytest.mark.parametrize("factor", [1.0, 6.0])
@pytest.mark.parametrize(
    ("device", "durations", "step_s"),
    [
        # Two replicas share the rows of stage 0, which has two layers.
        # The replicas of stage 0 share the step of 10 ms.
        ("d0", {0: {**FORWARD, **BACKWARD}}, 0.005),
        ("d1", {0: {**FORWARD, **BACKWARD}}, 0.005),
        ("d2", {1: FORWARD}, 0.0),
        ("d3", {1: BACKWARD, 2: {**FORWARD, **BACKWARD}}, 0.01),
    ],
)
def test_durations_of_a_device(
    device: str, durations: dict[int, dict[str, float]], step_s: float, factor: float
) -> None:
    emulation = small()
    costs = emulation.evaluation.costs
    runners, slow_step_s = _make_runners(
        costs, Clock(), costs.cluster.index[device], factor, Scratch(largest_payload(costs))
    )
    assert slow_step_s == pytest.approx(step_s * factor)
    assert runners.keys() == durations.keys()
    for number, runner in runners.items():
        clock = Clock()
        runner._clock = clock
        found = {}
        _, graph = runner.run(NOTHING, 0, ROWS, None, keep=True, defer=False)
        found["forward_s"] = clock.take()
        runner.backward(graph, [])
        found["backward_s"] = clock.take()
        graph = runner.recompute(ROWS, defer=True)
        found["recompute_s"] = clock.take()
        grads = runner.backward(graph, [])
        found["input_grad_s"] = clock.take()
        runner.backward_weight(graph)
        found["weight_grad_s"] = clock.take()
        expected = dict.fromkeys(found, 0.0) | {name: factor * seconds for name, seconds in durations[number].items()}
        assert found == pytest.approx(expected)
        assert (len(grads) == 0) == (number == 0)
        assert (len(graph.loss_grads) == 1) == (number == 2)


def test_sizes_are_those_of_the_costs() -> None:
    costs = small().evaluation.costs
    for number in range(costs.plan.num_stages):
        sizes = sizes_of(costs, number)
        assert abs(GRID * sizes.input_width - costs.input_bytes[number]) <= GRID / 2
        assert abs(GRID * sizes.output_width - max(GRID, costs.output_bytes[number])) <= GRID / 2
        assert abs(GRID * sizes.kept_width - max(GRID, costs.kept_bytes[number])) <= GRID / 2
        assert 4 * sizes.num_parameters == costs.parameter_bytes[number]
    assert len(costs.reductions) == 1
    # The gradients of the two units of stage 0.
    assert reduced_bytes(costs, 0) == pytest.approx(2 * 800_000)
    assert [num_numbers(size) for size in (0.0, 1.0, 4.0, 10.0, 4e6)] == [1, 1, 1, 2, 1_000_000]


def test_the_shared_memory_has_room_for_every_payload() -> None:
    costs = small().evaluation.costs
    scratch = Scratch(largest_payload(costs))
    for number in range(costs.plan.num_stages):
        sizes = sizes_of(costs, number)
        for width in (sizes.input_width, sizes.output_width, sizes.kept_width):
            assert tuple(scratch.rows(GRID, width).shape) == (GRID, width)
        assert scratch.numbers(sizes.num_parameters).dtype == torch.float32
        assert len(scratch.numbers(sizes.num_parameters)) == sizes.num_parameters
    for number in range(len(costs.reductions)):
        size = num_numbers(reduced_bytes(costs, number))
        assert len(scratch.numbers(size)) == size
