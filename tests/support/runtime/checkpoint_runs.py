"""Training that is saved and resumed, as functions that ranks can run."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from penstock.io import write_whole
from penstock.model.blocks import find_blocks
from penstock.plan.types import Plan
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.state.checkpoints.directory import find_checkpoints
from penstock.runtime.state.checkpoints.record import read_record
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import make, mean_square, plan_of

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"lr": 1e-2}),
    "amsgrad": (torch.optim.Adam, {"lr": 1e-2, "amsgrad": True}),
    "momentum": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
    "plain": (torch.optim.SGD, {"lr": 1e-2}),
}
NUM_MICROBATCHES = 3
NUM_ROWS = 7
SEED = 11


@dataclass(frozen=True)
class Run:
    """A training run, and whether it loads or saves a checkpoint."""

    kind: str
    plan: Plan | None
    """None: in a single process, without a pipeline."""
    optimizer: str
    stop: int
    folder: str = ""
    load: bool = False
    save: bool = False


@dataclass
class Trained:
    losses: list[Tensor]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    rates: list[float]
    drawn: Tensor
    """Drawn from torch's generator at the end."""


def train(run: Run) -> Trained:
    """Train up to a step, from scratch or from a checkpoint, by a plan or in a single process."""
    model = KINDS[run.kind].model()
    kind, options = OPTIMIZERS[run.optimizer]
    # A loaded state must not depend on the state before.
    pipe = (
        None
        if run.plan is None
        else Pipeline(model, run.plan, KINDS[run.kind].loss, seed=0 if run.load else SEED, timeout_s=60)
    )
    optimizer = kind(model.parameters(), **options) if pipe is None else pipe.optimizer(kind, **options)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.5)
    torch.manual_seed(1 if run.load else 77)
    begin = 0
    if run.load:
        assert pipe is not None
        loaded = pipe.load(run.folder)
        begin = loaded.step
        scheduler.load_state_dict(loaded.extra["scheduler"])
    losses, rates = [], []
    for step in range(begin, run.stop):
        torch.rand(1)
        x, y = KINDS[run.kind].batch(step, NUM_ROWS)
        optimizer.zero_grad()
        if pipe is None:
            losses.append(
                reference_step(
                    model, find_blocks(model), NUM_MICROBATCHES, KINDS[run.kind].loss, x, y, step=step, seed=SEED
                )
            )
        else:
            losses.append(pipe.step(x, y))
        optimizer.step()
        scheduler.step()
        rates.append(float(scheduler.get_last_lr()[0]))
    drawn = torch.rand(3)
    if pipe is None:
        parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    else:
        if run.save:
            torch.manual_seed(5)
            torch.rand(4)
            pipe.save(run.folder, extra={"scheduler": scheduler.state_dict()})
        pipe.close()
        parameters, buffers = dict(pipe.named_parameters()), pipe.named_buffers()
    return Trained(losses, {name: item.detach() for name, item in parameters.items()}, dict(buffers), rates, drawn)


def save_steps(folder: str, steps: list[int], keep: int | None) -> list[str]:
    """Save after each of these numbers of steps; gives the final names in the directory."""
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    pipe.optimizer(torch.optim.SGD, lr=0.1)
    for step in steps:
        pipe._step = step
        pipe.save(folder, keep=keep)
    pipe.close()
    return sorted(path.name for path in Path(folder).iterdir() if path.name != ".lock")


def save_filled(folder: str, steps: list[int]) -> None:
    """Save after each of these numbers of steps; every parameter has the number as its value."""
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    pipe.optimizer(torch.optim.SGD, lr=0.1)
    for step in steps:
        pipe._step = step
        fill(pipe, step)
        pipe.save(folder, keep=None)
    pipe.close()


def load_filled(folders: list[str], step: int | None) -> list[tuple[str, tuple[str, ...]]]:
    """Load from each folder: the step or the error, and what was passed over. The values must be those of the step."""
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    pipe.optimizer(torch.optim.SGD, lr=0.1)
    outcomes: list[tuple[str, tuple[str, ...]]] = []
    for folder in folders:
        fill(pipe, -1)
        try:
            loaded = pipe.load(folder, step=step)
        except ValueError as error:
            outcomes.append((f"{type(error).__name__}: {error}", ()))
            value = -1
        else:
            outcomes.append((f"step {loaded.step}", loaded.skipped))
            value = loaded.step
        assert all((item == value).all() for item in pipe.named_parameters().values()), folder
    pipe.close()
    return outcomes


def fill(pipe: Pipeline, value: int) -> None:
    with torch.no_grad():
        for item in pipe.named_parameters().values():
            item.fill_(value)


def load_step(folder: str, step: int | None) -> int:
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    pipe.optimizer(torch.optim.SGD, lr=0.1)
    try:
        return pipe.load(folder, step=step).step
    finally:
        pipe.close()


def make_optimizer(pipe: Pipeline, name: str) -> torch.optim.Optimizer:
    """An optimizer of this rank's parameters. "NAME groups" has weights and biases in separate groups."""
    kind, options = OPTIMIZERS[name.removesuffix(" groups")]
    if not name.endswith(" groups"):
        return pipe.optimizer(kind, **options)

    def by_dimension(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        groups = [[item for item in parameters if (item.dim() > 1) == is_weight] for is_weight in (True, False)]
        return kind([{"params": group} for group in groups], **options)

    return pipe.optimizer(by_dimension)


def try_load(kind: str, optimizers: list[str], folder: str, with_optimizer: bool = True) -> str:
    """The result of a load, or its error. After an error the model must be unchanged."""
    pipe = make(kind, plan_of([0, 2, len(find_blocks(KINDS[kind].model()))], [["d0"], ["d1"]]))
    made = [make_optimizer(pipe, name) for name in optimizers]
    before = {name: item.detach().clone() for name, item in pipe.named_parameters().items()}
    try:
        loaded = pipe.load(folder, optimizer=with_optimizer)
    except ValueError as error:
        assert all(torch.equal(item, before[name]) for name, item in pipe.named_parameters().items())
        return f"{type(error).__name__}: {error}"
    finally:
        pipe.close()
    assert len(made) == len(optimizers)
    return f"step {loaded.step}"


def try_save(
    optimizers: list[str],
    folders: list[str],
    uneven_rate: bool = False,
    limit: int | None = None,
    extra: str = "",
) -> str:
    """The name of the saved checkpoint, or the error."""
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]))
    made = [make_optimizer(pipe, name) for name in optimizers]
    if uneven_rate:
        made[0].param_groups[0]["lr"] = 0.1 * (1 + dist.get_rank())
    try:
        with small_files(limit if dist.get_rank() == 1 else None):
            path = pipe.save(folders[dist.get_rank()], extra=(lambda: extra) if extra else None)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        pipe.close()
    return path.name


@contextmanager
def small_files(limit: int | None) -> Iterator[None]:
    """Limit files to a number of bytes, as if the disk were full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def come_late(folder: str) -> None:
    pipe = make("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]]), timeout_s=1.0, checkpoint_timeout_s=1.0)
    if dist.get_rank() == 1:
        time.sleep(3)
    pipe.save(folder)


SAVED_PLAN = plan_of([0, 2, 5, 7], [["d0"], ["d0"], ["d1"]], backward=[["d0"], ["d1"], ["d1"]], schedule="zb_h1")


def save_for_ever(folder: str, store_file: str, rank: int, expected: dict[int, dict[str, Tensor]]) -> None:
    """Train and save after every step until killed, and check the loaded state.

    Rank 0 writes the number of the last complete checkpoint to a file after each save.
    """
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store_file}", rank=rank, world_size=2)
    pipe = make("mlp", SAVED_PLAN, timeout_s=60)
    optimizer = pipe.optimizer(torch.optim.AdamW, lr=1e-2)
    step = 0
    if find_checkpoints(Path(folder)):
        step = pipe.load(folder).step
        assert not [path for path in Path(folder).iterdir() if path.name.endswith(".part")]
        check_numbers(pipe, expected[step])
    Path(f"{store_file}.{rank}.begun").touch()
    while True:
        optimizer.zero_grad()
        # Repeat the same few steps, so that the expected parameters are known however long it takes.
        pipe._step = step % (len(expected) - 1)
        if pipe._step == 0:
            reset(pipe, optimizer, expected[0])
        pipe.step(*KINDS["mlp"].batch(pipe._step, NUM_ROWS))
        optimizer.step()
        step = pipe._step
        path = pipe.save(folder)
        if rank == 0:
            write_whole(acknowledged(store_file), str(read_record(path).number).encode())


def acknowledged(store_file: str) -> Path:
    """The file with the number of the last checkpoint whose save has returned."""
    return Path(f"{store_file}.saved")


def reset(pipe: Pipeline, optimizer: torch.optim.Optimizer, values: dict[str, Tensor]) -> None:
    optimizer.state.clear()
    pipe._weight_return.finish_all()
    with torch.no_grad():
        for name, item in pipe._model.named_parameters():
            if not item.is_meta:
                item.copy_(values[name])
    pipe._weight_return.note_versions()


def check_numbers(pipe: Pipeline, expected: dict[str, Tensor]) -> None:
    for name, item in pipe._model.named_parameters():
        if not item.is_meta:
            assert torch.equal(item, expected[name]), name


def single_process_steps(num_steps: int) -> dict[int, dict[str, Tensor]]:
    """The parameters after each step, in a single process."""
    model = KINDS["mlp"].model()
    blocks = find_blocks(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    states = {0: copy_parameters(model)}
    for step in range(num_steps):
        optimizer.zero_grad()
        x, y = KINDS["mlp"].batch(step, NUM_ROWS)
        reference_step(model, blocks, NUM_MICROBATCHES, KINDS["mlp"].loss, x, y, step=step)
        optimizer.step()
        states[step + 1] = copy_parameters(model)
    return states


def copy_parameters(model: nn.Module) -> dict[str, Tensor]:
    return {name: item.detach().clone() for name, item in model.named_parameters()}


class Counting(nn.Module):
    """Counts its calls in a buffer, and scales its output by the count."""

    def __init__(self, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()), persistent=persistent)
        self.count: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * (1 + self.count)


def count_and_resume(plan: Plan, folder: str, persistent: bool) -> tuple[Tensor, Tensor]:
    """The loss of a third step: in the same pipeline, and in a new one that loads a checkpoint of the first two."""

    def make_counting() -> Pipeline:
        torch.manual_seed(0)
        return Pipeline(nn.Sequential(nn.Linear(3, 3), Counting(persistent), nn.Linear(3, 2)), plan, mean_square)

    batch = torch.ones(6, 3), torch.zeros(6)
    before, after = make_counting(), make_counting()
    for _ in range(2):
        before.step(*batch)
    before.save(folder)
    after.load(folder, optimizer=False)
    losses = before.step(*batch), after.step(*batch)
    before.close()
    after.close()
    return losses
