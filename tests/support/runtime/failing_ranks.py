"""What goes wrong, as functions that ranks can run; those with a meeting are the whole life of a process."""

import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.errors import InputError
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.transport.process_groups import backend_for
from tests.support.runtime import message_order
from tests.support.runtime.user_models import mean_square, plan_of


def join(meeting: str, rank: int, num_ranks: int, backend: str = "gloo") -> None:
    """Meet the others; all draw the same random numbers from here on."""
    message_order.register()
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=num_ranks)
    torch.manual_seed(0)


class Longer(nn.Module):
    """Hands on a tensor whose shape depends on what is in it."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().abs().sum()) < 100 else torch.cat([x, x], 1)


class Slow(nn.Module):
    """Waits where it is told to."""

    def __init__(self, seconds: float, rank: int) -> None:
        super().__init__()
        self.seconds = seconds
        self.rank = rank

    def forward(self, x: Tensor) -> Tensor:
        if dist.get_rank() == self.rank:
            time.sleep(self.seconds)
        return x


def change_shapes(meeting: str, rank: int) -> None:
    """The whole life of a process; what rank 0 sends has another shape in the second step."""
    join(meeting, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), Longer(), nn.Tanh())
    pipe = Pipeline(model, plan_of([0, 2, 3], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    pipe.step(torch.full((6, 3), 1e5), torch.zeros(6))


def wait_too_long() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), Slow(2.5, rank=0), nn.Linear(3, 3))
    plan = plan_of([0, 2, 3], [["d0"], ["d1"]], num_microbatches=1)
    pipe = Pipeline(model, plan, mean_square, timeout_s=1.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def come_too_late() -> None:
    """Rank 1 begins its step long after rank 0."""
    torch.manual_seed(0)
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]], num_microbatches=1)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), plan, mean_square, timeout_s=1.0)
    if dist.get_rank() == 1:
        time.sleep(2.5)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def another_way(meeting: str, rank: int) -> None:
    """The whole life of a process; a moved stage goes another way in its second step."""
    join(meeting, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), Turn(), nn.Tanh())
    plan = plan_of([0, 1, 2, 3], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]])
    pipe = Pipeline(model, plan, mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    pipe.step(torch.full((6, 3), 1e5), torch.zeros(6))


class Turn(nn.Module):
    """The same shapes either way."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if float(x.detach().abs().max()) < 100 else x * 3


def meet_too_late() -> None:
    """Rank 1 takes its time before a batch norm that both share."""
    torch.manual_seed(0)
    model = nn.Sequential(Slow(3.0, 1), nn.BatchNorm1d(3), nn.Linear(3, 2))
    pipe = Pipeline(model, plan_of([0, 3], [["d0", "d1"]]), mean_square, timeout_s=1.0)
    pipe.step(torch.randn(12, 3), torch.randn(12))


class Stumble(nn.Module):
    """Ends its process in the third run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        if self.runs == 3:
            os._exit(3)
        return x


def lose_a_rank(meeting: str, rank: int, backend: str = "gloo") -> None:
    """The whole life of a process; rank 1's ends early."""
    join(meeting, rank, 2, backend)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Stumble())
    pipe = Pipeline(model, plan_of([0, 1, 3], [["d0"], ["d1"]]), mean_square, timeout_s=5.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def lose_a_rank_of_torchrun() -> None:
    """The whole life of a process that torchrun has started; rank 1's ends early."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Stumble())
    pipe = Pipeline(model, plan_of([0, 1, 3], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def wait_to_be_ended(meeting: str, rank: int) -> None:
    """The whole life of a process that has nobody to miss, and is told to end."""
    join(meeting, rank, 1)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), Slow(60, rank=0)), plan_of([0, 2], [["d0"]]), mean_square)
    os.kill(os.getpid(), signal.SIGTERM)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


class Explode(nn.Module):
    """Gives something that is not a number, in its third run."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x * (float("nan") if self.runs == 3 else 1.0)


def explode(where: str, meeting: str, rank: int) -> None:
    """The whole life of a process; numbers stop being finite here or there."""
    join(meeting, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Explode() if where == "block" else nn.Tanh(), nn.Tanh())

    def loss(out: Tensor, targets: Tensor) -> Tensor:
        return mean_square(out, targets) * (float("inf") if where == "loss" else 1.0)

    pipe = Pipeline(model, plan_of([0, 1, 4], [["d0"], ["d1"]], num_microbatches=2), loss, check_finite=True)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=float("inf") if where == "step" else 0.1)
    bad = float("nan") if where == "batch" else 1.0
    for _ in range(2):
        pipe.step(torch.cat([torch.ones(5, 3), torch.full((1, 3), bad)]), torch.zeros(6))
        optimizer.step()


def stay_stuck(meeting: str, rank: int) -> None:
    """The whole life of a process; rank 1 does nothing for a long time, rank 2 waits for it, rank 0 for rank 2."""
    join(meeting, rank, 3)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Slow(60, rank=1), nn.Linear(3, 3))
    plan = plan_of([0, 1, 3, 4], [["d0"], ["d1"], ["d2"]], num_microbatches=2)
    pipe = Pipeline(model, plan, mean_square, timeout_s=3.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def stop_the_keeper(meeting: str, rank: int) -> None:
    """The whole life of a process; rank 0, which keeps the store of all, is stopped in the midst of a step."""
    place = Path(meeting)
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        place.with_suffix(".new").write_text(str(port))
        place.with_suffix(".new").rename(place)
    while not place.exists():
        time.sleep(0.05)
    where = f"tcp://127.0.0.1:{place.read_text()}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    pipe = Pipeline(model, plan_of([0, 1, 2], [["d0"], ["d1"]]), mean_square, timeout_s=2.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def come_too_late_to_make_it() -> None:
    """Rank 1 is about other things when the others make their pipeline."""
    if dist.get_rank() == 1:
        time.sleep(4)
    Pipeline(nn.Sequential(nn.Linear(3, 3)), plan_of([0, 1], [["d0", "d1"]]), mean_square, timeout_s=1.0)


def different_batches(plan: Plan, shapes: Sequence[Sequence[tuple[int, int]]]) -> list[float]:
    """Each rank has its own shapes of batches, of which only the last differs; the losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    pipe = Pipeline(model, plan, lambda out, targets: mean_square(out.flatten(1), targets), timeout_s=20)
    return [
        float(pipe.step(torch.ones(num_rows, length, 3), torch.zeros(num_rows)))
        for num_rows, length in shapes[dist.get_rank()]
    ]


def another_type(meeting: str, rank: int) -> None:
    """The whole life of a process; the inputs have a type that the third block does not take."""
    join(meeting, rank, 2)
    model = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
    pipe = Pipeline(model, plan_of([0, 1, 4], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3, dtype=torch.float64), torch.zeros(6))


def go_away(then: str, meeting: str, rank: int) -> None:
    """The whole life of a process; rank 1's ends between steps, and rank 0 goes on when it has."""
    join(meeting, rank, 2)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), plan_of([0, 1, 2], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    if rank == 1:
        pipe.close()
        os._exit(3)
    time.sleep(1.0)
    if then == "step":
        pipe.step(torch.zeros(6, 3), torch.zeros(6))
    elif then == "timeline":
        pipe.last_timeline()
    else:
        pipe.clip_grad_norm(1.0)


def other_backend(device: str) -> str:
    """What is said if a model is on a device that gloo does not send from."""
    with pytest.raises(InputError) as caught:
        backend_for(torch.device(device))
    return str(caught.value)
