"""Failures as functions that ranks run. Those that take a store file are the main function of a process."""

import os
import signal
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
from penstock.runtime.transport.process_groups import select_backend
from tests.support.runtime import message_order
from tests.support.runtime.loopback_store import connect_store, host_store
from tests.support.runtime.user_models import mean_square, plan_of


def join(store_file: str, rank: int, num_ranks: int, backend: str = "gloo") -> None:
    """Join the process group through a file, and seed the random numbers alike on all ranks."""
    message_order.register()
    dist.init_process_group(backend, init_method=f"file://{store_file}", rank=rank, world_size=num_ranks)
    torch.manual_seed(0)


class ChangeShape(nn.Module):
    """Returns a tensor whose shape depends on the values of its input."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.detach().abs().sum()) < 100 else torch.cat([x, x], 1)


class Slow(nn.Module):
    """Sleeps on one rank."""

    def __init__(self, seconds: float, rank: int) -> None:
        super().__init__()
        self.seconds = seconds
        self.rank = rank

    def forward(self, x: Tensor) -> Tensor:
        if dist.get_rank() == self.rank:
            time.sleep(self.seconds)
        return x


def change_shapes(store_file: str, rank: int) -> None:
    """Rank 0 sends another shape in the second step than in the first."""
    join(store_file, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), ChangeShape(), nn.Tanh())
    pipe = Pipeline(model, plan_of([0, 2, 3], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    pipe.step(torch.full((6, 3), 1e5), torch.zeros(6))


def delay_forward() -> None:
    """Rank 0 takes longer for its forward than rank 1 waits for the activations."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), Slow(2.5, rank=0), nn.Linear(3, 3))
    plan = plan_of([0, 2, 3], [["d0"], ["d1"]], num_microbatches=1)
    pipe = Pipeline(model, plan, mean_square, timeout_s=1.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def start_step_late() -> None:
    """Rank 1 starts its step later than rank 0 waits for it."""
    torch.manual_seed(0)
    plan = plan_of([0, 1, 2], [["d0"], ["d1"]], num_microbatches=1)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), plan, mean_square, timeout_s=1.0)
    if dist.get_rank() == 1:
        time.sleep(2.5)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def change_graph(store_file: str, rank: int) -> None:
    """A stage with a remote backward builds another graph in the second step than in the first."""
    join(store_file, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), ChangeGraph(), nn.Tanh())
    plan = plan_of([0, 1, 2, 3], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]])
    pipe = Pipeline(model, plan, mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    pipe.step(torch.full((6, 3), 1e5), torch.zeros(6))


class ChangeGraph(nn.Module):
    """Builds one of two graphs, depending on the values of its input; both give the same shapes."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if float(x.detach().abs().max()) < 100 else x * 3


def sync_late() -> None:
    """Rank 1 comes to a batch norm over all replicas later than rank 0 waits for it."""
    torch.manual_seed(0)
    model = nn.Sequential(Slow(3.0, 1), nn.BatchNorm1d(3), nn.Linear(3, 2))
    pipe = Pipeline(model, plan_of([0, 3], [["d0", "d1"]]), mean_square, timeout_s=1.0)
    pipe.step(torch.randn(12, 3), torch.randn(12))


class ExitProcess(nn.Module):
    """Exits the process in its third forward."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        if self.runs == 3:
            os._exit(3)
        return x


def lose_rank(store_file: str, rank: int, backend: str = "gloo") -> None:
    """Rank 1 exits in the middle of a step."""
    join(store_file, rank, 2, backend)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), ExitProcess())
    pipe = Pipeline(model, plan_of([0, 1, 3], [["d0"], ["d1"]]), mean_square, timeout_s=5.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def lose_rank_of_torchrun() -> None:
    """The same in processes that torchrun starts."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), ExitProcess())
    pipe = Pipeline(model, plan_of([0, 1, 3], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def await_sigterm(store_file: str, rank: int) -> None:
    """The only rank receives SIGTERM during a step."""
    join(store_file, rank, 1)
    pipe = Pipeline(nn.Sequential(nn.Linear(3, 3), Slow(60, rank=0)), plan_of([0, 2], [["d0"]]), mean_square)
    os.kill(os.getpid(), signal.SIGTERM)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


class Diverge(nn.Module):
    """Returns NaN from the second step on. The first one has two forwards, and two more to try the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x * (float("nan") if self.runs > 4 else 1.0)


def diverge(where: str, store_file: str, rank: int) -> None:
    """Values stop being finite in a block, in the loss, in the batch or in the optimizer step."""
    join(store_file, rank, 2)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Diverge() if where == "block" else nn.Tanh(), nn.Tanh())

    def loss(out: Tensor, targets: Tensor) -> Tensor:
        return mean_square(out, targets) * (float("inf") if where == "loss" else 1.0)

    pipe = Pipeline(model, plan_of([0, 1, 4], [["d0"], ["d1"]], num_microbatches=2), loss, check_finite=True)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=float("inf") if where == "step" else 0.1)
    last_row = float("nan") if where == "batch" else 1.0
    for _ in range(2):
        pipe.step(torch.cat([torch.ones(5, 3), torch.full((1, 3), last_row)]), torch.zeros(6))
        optimizer.step()


def hang_in_forward(store_file: str, rank: int) -> None:
    """Rank 1 hangs in its forward, rank 2 waits for rank 1, and rank 0 for rank 2."""
    join(store_file, rank, 3)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), Slow(60, rank=1), nn.Linear(3, 3))
    plan = plan_of([0, 1, 3, 4], [["d0"], ["d1"], ["d2"]], num_microbatches=2)
    pipe = Pipeline(model, plan, mean_square, timeout_s=3.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def stop_store_host(store_file: str, rank: int) -> None:
    """Rank 0, which hosts the store, is stopped between two steps."""
    path = Path(store_file)
    if rank == 0:
        store = host_store()
        path.with_suffix(".new").write_text(str(store.port))
        path.with_suffix(".new").rename(path)
    else:
        while not path.exists():
            time.sleep(0.05)
        store = connect_store(int(path.read_text()))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    pipe = Pipeline(model, plan_of([0, 1, 2], [["d0"], ["d1"]]), mean_square, timeout_s=2.0)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    pipe.step(torch.zeros(6, 3), torch.zeros(6))


def construct_late() -> None:
    """Rank 1 constructs its pipeline later than rank 0 waits for it."""
    if dist.get_rank() == 1:
        time.sleep(4)
    Pipeline(nn.Sequential(nn.Linear(3, 3)), plan_of([0, 1], [["d0", "d1"]]), mean_square, timeout_s=1.0)


def different_batches(plan: Plan, shapes: Sequence[Sequence[tuple[int, int]]]) -> list[float]:
    """Train with batches whose last shape differs between ranks; return the losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    pipe = Pipeline(model, plan, lambda out, targets: mean_square(out.flatten(1), targets), timeout_s=20)
    return [
        float(pipe.step(torch.ones(num_rows, length, 3), torch.zeros(num_rows)))
        for num_rows, length in shapes[dist.get_rank()]
    ]


def pass_wrong_dtype(store_file: str, rank: int) -> None:
    """The inputs have a dtype that the third block does not accept."""
    join(store_file, rank, 2)
    model = nn.Sequential(nn.Tanh(), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
    pipe = Pipeline(model, plan_of([0, 1, 4], [["d0"], ["d1"]]), mean_square)
    pipe.step(torch.zeros(6, 3, dtype=torch.float64), torch.zeros(6))


def exit_between_steps(then: str, store_file: str, rank: int) -> None:
    """Rank 1 exits after a step, and then rank 0 calls a method that needs rank 1."""
    join(store_file, rank, 2)
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


def select_unsupported_backend(device: str) -> str:
    """Return the error for a model on a device that gloo does not support."""
    with pytest.raises(InputError) as caught:
        select_backend(torch.device(device))
    return str(caught.value)
