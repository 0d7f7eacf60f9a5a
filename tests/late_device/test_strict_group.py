"""The process group with the rules of NCCL."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support.late_device import PACES, Settings, take_host_waits, take_races
from tests.support.late_device.ranks import checked_device
from tests.support.runtime.rank_pool import RankPool


def messages_arrive_in_order() -> None:
    rank = dist.get_rank()
    for pace in PACES:
        with checked_device(Settings(pace=pace)):
            if rank == 0:
                works = [dist.isend(torch.full((5,), float(number), device="late"), 1) for number in range(6)]
            else:
                buffers = [torch.empty(5, device="late") for _ in range(6)]
                works = [dist.irecv(buffer, 0) for buffer in buffers]
            take_host_waits()
            for work in works:
                assert work is not None
                work.wait()
            assert take_host_waits() == [], "waiting orders the stream only"
            if rank == 1:
                assert [buffer[0].item() for buffer in buffers] == list(range(6))


def a_send_ends_when_it_is_received() -> None:
    with checked_device(Settings()):
        dist.barrier()
        signal = torch.zeros(1)
        if dist.get_rank() == 0:
            work = dist.isend(torch.ones(5, device="late"), 1)
            assert work is not None
            time.sleep(0.2)
            assert not work.is_completed()
            dist.send(signal, 1)
            work.wait()
        else:
            dist.recv(signal, 0)
            dist.recv(torch.empty(5, device="late"), 0)


def reading_without_a_wait_is_reported() -> None:
    with checked_device(Settings()):
        if dist.get_rank() == 0:
            dist.send(torch.ones(5, device="late"), 1)
        else:
            buffer = torch.empty(5, device="late")
            work = dist.irecv(buffer, 0)
            assert work is not None
            double = buffer * 2
            races = take_races()
            assert len(races) == 1
            assert "receive from rank 0" in races[0]
            work.wait()
            del double


def freeing_a_send_buffer_early_is_reported() -> None:
    with checked_device(Settings()):
        if dist.get_rank() == 0:
            buffer = torch.ones(5, device="late")
            work = dist.isend(buffer, 1)
            del buffer
            assert take_races() == [], "the work handle keeps the buffer"
            del work
            (race,) = take_races()
            assert "free" in race
            assert "send to rank 1" in race
        else:
            dist.recv(torch.empty(5, device="late"), 0)


def collectives_wait_for_the_stream() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    for pace in PACES:
        with checked_device(Settings(pace=pace)):
            tensor = torch.full((4,), float(rank + 1), device="late")
            dist.all_reduce(tensor)
            assert tensor.tolist() == [size * (size + 1) / 2] * 4
            dist.broadcast(tensor.fill_(rank), 1)
            assert tensor.tolist() == [1.0] * 4
            parts = [torch.empty(2, device="late") for _ in range(size)]
            dist.all_gather(parts, torch.full((2,), float(rank), device="late"))
            assert [part[0].item() for part in parts] == list(range(size))
            whole = torch.empty(2 * size, device="late")
            dist.all_gather_into_tensor(whole, torch.full((2,), float(rank), device="late"))
            assert whole.tolist() == [float(number // 2) for number in range(2 * size)]


def coalesced_messages_start_together() -> None:
    """Both ranks send first: without coalescing, neither send could end."""
    peer = 1 - dist.get_rank()
    for pace in PACES:
        with checked_device(Settings(pace=pace)):
            mine, theirs = torch.full((3,), float(peer), device="late"), torch.empty(3, device="late")
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)])
            for work in works:
                work.wait()
            assert theirs.tolist() == [float(dist.get_rank())] * 3


def tags_and_host_tensors_are_refused() -> None:
    peer = 1 - dist.get_rank()
    group: Any = dist.distributed_c10d._get_default_group()._get_backend(torch.device("late"))
    with pytest.raises(RuntimeError, match="no tags"):
        group.send([torch.ones(1, device="late")], peer, 3)
    with pytest.raises(RuntimeError, match="tensor of the device"):
        group.send([torch.ones(1)], peer, 0)


@pytest.mark.parametrize(
    "check",
    [
        messages_arrive_in_order,
        a_send_ends_when_it_is_received,
        reading_without_a_wait_is_reported,
        freeing_a_send_buffer_early_is_reported,
        collectives_wait_for_the_stream,
        coalesced_messages_start_together,
        tags_and_host_tensors_are_refused,
    ],
    ids=lambda check: check.__name__,
)
def test_group(late_pool: RankPool, check: Callable[[], None]) -> None:
    late_pool.run(2, check)
