"""Typical uses of a pipeline, as functions that ranks can run."""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from penstock.cluster.types import Cluster
from penstock.model.blocks import find_blocks
from penstock.plan.types import Origin, Plan, Stage, on
from penstock.profile.types import Profile
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.transport import shared_memory
from penstock.runtime.verify.plain_reference import reference_step
from tests.support.runtime.models import KINDS
from tests.support.runtime.training import Job, Trained, train


def plan_of(
    cuts: Sequence[int],
    devices: Sequence[Sequence[str]],
    *,
    num_microbatches: int = 3,
    schedule: str = "1f1b",
    backward: Sequence[Sequence[str]] | None = None,
    recompute: bool = False,
) -> Plan:
    """Stages between these cuts, each on these devices."""
    nowhere = Origin(name="none", digest="none")
    stages = tuple(
        Stage(
            start=cuts[number],
            stop=cuts[number + 1],
            forward=on(*group),
            backward=on(*(group if backward is None else backward[number])),
            recompute=recompute,
        )
        for number, group in enumerate(devices)
    )
    return Plan(
        planner="hand",
        schedule=schedule,
        num_microbatches=num_microbatches,
        micro_batch_size=4,
        profile=nowhere,
        cluster=nowhere,
        stages=stages,
    )


def make(kind: str, plan: Plan, **options: Any) -> Pipeline:
    return Pipeline(KINDS[kind].model(), plan, KINDS[kind].loss, **options)


def numbers(pipe: Pipeline) -> dict[str, Tensor]:
    found = {name: item.detach().clone() for name, item in pipe.named_parameters().items()}
    pipe.close()
    return found


def accumulate_and_schedule(
    plan: Plan | None, kind: str, rows: Sequence[int]
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Two iterations per optimizer step, a falling learning rate, batches of different sizes.

    In a single process if there is no plan.
    """
    model = KINDS[kind].model()
    pipe = None if plan is None else Pipeline(model, plan, KINDS[kind].loss)
    blocks = None if plan is not None else find_blocks(model)
    form: dict[str, Any] = {"lr": 1e-2, "momentum": 0.9}
    optimizer = torch.optim.SGD(model.parameters(), **form) if pipe is None else pipe.optimizer(torch.optim.SGD, **form)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    losses = []
    for step, num_rows in enumerate(rows):
        x, y = KINDS[kind].batch(step, num_rows)
        if pipe is not None:
            losses.append(pipe.step(x, y))
        else:
            assert blocks is not None
            losses.append(reference_step(model, blocks, 3, KINDS[kind].loss, x, y, step=step))
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
            falling.step()
    if pipe is None:
        return losses, {name: item.detach() for name, item in model.named_parameters()}
    return losses, numbers(pipe)


def mean_square(out: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(out.mean(1), targets)


def train_with_frozen(plan: Plan | None, width: int) -> list[Tensor]:
    """Losses of a model with a frozen middle block. The other parameters are zero for a while after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, width).requires_grad_(False), nn.Linear(width, 2))
    pipe = None if plan is None else Pipeline(model, plan, mean_square, timeout_s=30)
    trained = dict(model.named_parameters()) if pipe is None else pipe.named_parameters()
    if pipe is None:
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    losses = []
    for step in range(4):
        x, y = torch.randn(6, 3), torch.randn(6)
        optimizer.zero_grad()
        if pipe is None:
            losses.append(reference_step(model, find_blocks(model), 3, mean_square, x, y, step=step))
        else:
            losses.append(pipe.step(x, y))
        optimizer.step()
        # What was sent is what the step made of them, whatever becomes of them here.
        if pipe is not None:
            before = [item.detach().clone() for item in trained.values()]
            # Through `data`, as a pipeline refuses what it sees to have changed.
            for item in trained.values():
                item.data.zero_()
            time.sleep(0.05)
            for item, value in zip(trained.values(), before, strict=True):
                item.data.copy_(value)
    if pipe is not None:
        pipe.close()
    return losses


def train_after_all(plan: Plan) -> None:
    """A batch norm in eval mode when the pipeline is created, and in training mode afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3).eval(), nn.Tanh(), nn.Linear(3, 2))
    pipe = Pipeline(model, plan, mean_square, timeout_s=5)
    pipe.step(torch.randn(12, 3), torch.randn(12))
    model.train()
    pipe.step(torch.randn(12, 3), torch.randn(12))


def held_bytes(plan: Plan, kind: str) -> tuple[int, int]:
    """Number of parameters on a real device, and of all."""
    model = KINDS[kind].model()
    total = sum(item.numel() for item in model.parameters())
    pipe = Pipeline(model, plan, KINDS[kind].loss)
    pipe.close()
    return sum(item.numel() for item in model.parameters() if item.device.type != "meta"), total


def different_models(plan: Plan) -> None:
    torch.manual_seed(dist.get_rank())
    Pipeline(KINDS["mlp"].make(), plan, KINDS["mlp"].loss)


def different_plans(plans: Sequence[Plan]) -> None:
    make("mlp", plans[dist.get_rank()])


def only_make(kind: str, plan: Plan, profile: Profile | None = None, cluster: Cluster | None = None) -> None:
    make(kind, plan, profile=profile, cluster=cluster).close()


def timelines(plan: Plan, kind: str) -> tuple[list[str], list[float], list[float], float] | None:
    """The timeline of the second iteration on rank 0: actions, starts, ends; and its seconds by the clock there."""
    pipe = make(kind, plan)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    for step in range(2):
        dist.barrier()
        begun = time.perf_counter()
        pipe.step(*KINDS[kind].batch(step, 12))
        optimizer.step()
        taken_s = time.perf_counter() - begun
    found = pipe.last_timeline()
    pipe.close()
    if found is None:
        return None
    assert found.origin == "measured"
    names = [found.program.name(place) for place in range(found.program.num_actions)]
    return names, found.start_s.tolist(), found.end_s.tolist(), taken_s


def evaluate_between_steps(plan: Plan | None, kind: str) -> list[Tensor]:
    """Losses of steps and evaluations, before and after the optimizer step; in a single process if there is no plan."""
    model = KINDS[kind].model()
    pipe = None if plan is None else Pipeline(model, plan, KINDS[kind].loss)
    blocks = None if plan is not None else find_blocks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if pipe is None else pipe.optimizer(torch.optim.SGD, lr=0.1)
    losses = []

    def evaluate(batch: tuple[Tensor, Tensor]) -> Tensor:
        if pipe is not None:
            return pipe.evaluate(*batch)
        model.eval()
        with torch.no_grad():
            parts = [
                KINDS[kind].loss(model(x), y) / 3 for x, y in zip(*[torch.split(x, 2) for x in batch], strict=True)
            ]
        model.train()
        return parts[0] + parts[1] + parts[2]

    for step in range(3):
        batch = KINDS[kind].batch(step, 7)
        other = KINDS[kind].batch(50 + step, 6)
        optimizer.zero_grad()
        if pipe is not None:
            losses.append(pipe.step(*batch))
        else:
            assert blocks is not None
            losses.append(reference_step(model, blocks, 3, KINDS[kind].loss, *batch, step=step))
        losses.append(evaluate(other))
        optimizer.step()
        # Fresh parameters may still be on their way to where a forward runs.
        losses.append(evaluate(other))
    if pipe is not None:
        assert all(module.training for module in model.modules())
        pipe.close()
    return losses


def clip(plan: Plan | None, kind: str, norm_type: float) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Gradient norms, and parameters after clipped steps; in a single process if there is no plan."""
    model = KINDS[kind].model()
    pipe = None if plan is None else Pipeline(model, plan, KINDS[kind].loss)
    blocks = None if plan is not None else find_blocks(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5) if pipe is None else pipe.optimizer(torch.optim.SGD, lr=0.5)
    norms = []
    for step in range(3):
        batch = KINDS[kind].batch(step, 7)
        optimizer.zero_grad()
        if pipe is not None:
            pipe.step(*batch)
            norms.append(pipe.clip_grad_norm(0.05, norm_type))
        else:
            assert blocks is not None
            reference_step(model, blocks, 3, KINDS[kind].loss, *batch, step=step)
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05, norm_type))
        optimizer.step()
    if pipe is None:
        return norms, {name: item.detach() for name, item in model.named_parameters()}
    return norms, numbers(pipe)


def train_through_memory(job: Job, is_there: bool) -> tuple[Trained, int]:
    """Training with all payloads in shared memory, if there is any; also gives the number of slabs."""
    before, new = shared_memory.SHARED_MEMORY_MIN_BYTES, shared_memory._new_slab
    made = []

    def counted(size: int) -> shared_memory.Slab | None:
        slab = new(size) if is_there else None
        made.extend([] if slab is None else [slab])
        return slab

    shared_memory.SHARED_MEMORY_MIN_BYTES, shared_memory._new_slab = 0, counted
    try:
        return train(job), len(made)
    finally:
        shared_memory.SHARED_MEMORY_MIN_BYTES, shared_memory._new_slab = before, new


def train_under_the_profiler(plan: Plan) -> int:
    """Number of operators that torch's profiler recorded."""
    pipe = make("mlp", plan)
    count = 0
    for step in range(6):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            pipe.step(*KINDS["mlp"].batch(step, 16))
        count += len(seen.key_averages())
    pipe.close()
    return count
