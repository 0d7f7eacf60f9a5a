"""Emulated reductions start late by their latency, and weight returns have times of their own."""

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest
import torch
import torch.distributed as dist
from msgspec.structs import replace

from penstock.cluster.types import Wire
from penstock.dist import Describe
from penstock.emulation.rank import rank as rank_module
from penstock.emulation.rank.grad_reduce import EmulatedReducer, EmulatedSum
from penstock.emulation.rank.rank import _make_sums
from penstock.emulation.rank.scratch import Scratch, largest_payload
from penstock.emulation.rank.weight_return import TimedWeightReturn
from penstock.errors import PeerLost
from penstock.program import Action, Kind
from penstock.runtime.layout.layout import make_layout
from tests.support.small_emulation import small

if TYPE_CHECKING:
    from penstock.runtime.executor import WeightReturn
    from penstock.runtime.transport import Transport

LATENCY_S = 0.1


class Network:
    """All-reduces that take no time, and the transport that waits for them."""

    def __init__(self, error: str = "") -> None:
        self._error = error
        self.started: list[tuple[list[float], str, float, threading.Thread]] = []
        """Contents, group, time, and thread of each all-reduce."""
        self.waited_for: list[tuple[object, str]] = []

    def all_reduce(self, numbers: torch.Tensor, *, group: str, async_op: bool) -> str:
        assert async_op
        self.started.append((numbers.tolist(), group, time.perf_counter(), threading.current_thread()))
        if self._error:
            raise RuntimeError(self._error)
        return f"work in {group}"

    def wait(self, work: object, describe: Describe) -> None:
        self.waited_for.append((work, describe()))


def reducer_of(network: Network, monkeypatch: pytest.MonkeyPatch) -> EmulatedReducer:
    monkeypatch.setattr(dist, "all_reduce", network.all_reduce)
    sums = {
        (False, 0): EmulatedSum("stage", torch.tensor([1.0]), 0.0),
        (True, 0): EmulatedSum("tie", torch.tensor([2.0]), LATENCY_S),
    }
    reducer = EmulatedReducer(sums, cast("Transport", network))
    reducer.begin()
    return reducer


def test_a_reduction_without_latency_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    reduction = reducer_of(network, monkeypatch).start(is_tie=False, number=0, describe=lambda: "reducing")
    ((numbers, group, _, thread),) = network.started
    assert (numbers, group, thread) == ([1.0], "stage", threading.current_thread())
    assert (reduction.ended_s, network.waited_for) == (0.0, [])
    before_s = time.perf_counter()
    reduction.finish()
    assert network.waited_for == [("work in stage", "reducing")]
    assert reduction.ended_s >= before_s


def test_a_reduction_with_latency_starts_later_and_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    began_s = time.perf_counter()
    reduction = reducer_of(network, monkeypatch).start(is_tie=True, number=0, describe=lambda: "reducing")
    reduction.finish()
    ((numbers, group, at_s, thread),) = network.started
    assert (numbers, group) == ([2.0], "tie")
    assert at_s >= began_s + LATENCY_S
    assert thread is not threading.current_thread()
    assert network.waited_for == [("work in tie", "reducing")]
    assert reduction.ended_s >= at_s


@pytest.mark.parametrize("is_tie", [False, True])
def test_a_reduction_that_cannot_start_fails_where_it_is_needed(monkeypatch: pytest.MonkeyPatch, is_tie: bool) -> None:
    network = Network("Connection closed by peer")
    reduction = reducer_of(network, monkeypatch).start(is_tie=is_tie, number=0, describe=lambda: "reducing")
    with pytest.raises(PeerLost, match="reducing: the connection is lost"):
        reduction.finish()
    assert network.waited_for == []


class Returns:
    """The weights of these stages are to be received."""

    def __init__(self, stages: Sequence[int]) -> None:
        self._stages = stages
        self._pending: list[int] = []
        self.calls: list[tuple[str, int]] = []

    @property
    def pending_stages(self) -> list[int]:
        return list(self._pending)

    def start(self, step: int) -> None:
        self.calls.append(("start", step))
        self._pending = list(self._stages)

    def finish(self, stage: int) -> None:
        self.calls.append(("finish", stage))
        self._pending.remove(stage)


def action(kind: Kind, stage: int) -> Action:
    return Action(kind, stage, peer="d1" if kind in (Kind.SEND_P, Kind.RECV_P) else "")


def test_returns_have_the_time_at_which_the_weights_arrive() -> None:
    actions = [action(Kind.F, 0), action(Kind.SEND_P, 0), action(Kind.RECV_P, 1), action(Kind.RECV_P, 2)]
    returns = Returns([1, 2])
    timed = TimedWeightReturn(cast("WeightReturn", returns), actions)
    spans: list[tuple[float, float]] = [(1.0, 2.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]
    before_s = time.perf_counter()
    timed.start(3)
    timed.finish(0)  # nothing is received for this stage
    timed.finish(2)
    between_s = time.perf_counter()
    timed.finish_all()
    after_s = time.perf_counter()
    assert returns.calls == [("start", 3), ("finish", 2), ("finish", 1)]
    forward, sent, first, second = timed.insert_spans(spans)
    assert forward == (1.0, 2.0)
    assert sent[0] == sent[1] == first[0] == second[0]
    assert before_s <= sent[0] <= second[1] <= between_s <= first[1] <= after_s
    assert spans[1] == (0.0, 0.0)
    # The next step has times of its own.
    timed.start(4)
    with pytest.raises(KeyError):
        timed.insert_spans(spans)
    timed.finish_all()
    assert timed.insert_spans(spans)[2][0] >= after_s


@pytest.mark.parametrize("slow_down", [0.0, 3.0])
def test_ranks_take_part_in_their_own_reductions(monkeypatch: pytest.MonkeyPatch, slow_down: float) -> None:
    emulation = small()
    hosts = tuple(replace(host, inside=Wire(bandwidth=100e6, latency_s=1e-3)) for host in emulation.cluster.hosts)
    costs = replace(emulation, cluster=replace(emulation.cluster, hosts=hosts)).evaluation.costs
    asked: list[tuple[int, ...]] = []

    def make_ring_groups(rings: list[tuple[int, ...]], _new_group: object) -> list[str]:
        asked.extend(rings)
        return [f"group of {ring}" for ring in rings]

    monkeypatch.setattr(rank_module, "make_ring_groups", make_ring_groups)
    layout, scratch = make_layout(costs, ()), Scratch(largest_payload(costs))
    found = [_make_sums(costs, layout, rank, slow_down, scratch)[0] for rank in range(4)]
    # Making groups is collective, so every rank asks for all of them.
    assert [sorted(ring) for ring in asked] == [[0, 1]] * 4
    assert [list(sums) for sums in found] == [[(False, 0)], [(False, 0)], [], []]
    item = found[1][False, 0]
    assert item.group == f"group of {asked[0]}"
    # The gradients of two layers of 0.8 MB.
    assert item.numbers.nbytes == 1_600_000
    assert costs.reductions[0].ring.latency_s > 0
    assert item.latency_s == pytest.approx(slow_down * costs.reductions[0].ring.latency_s)
