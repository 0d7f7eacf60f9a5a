"""Training on the test device, watched."""

from itertools import pairwise
from time import perf_counter
from unittest import mock

import torch
from torch import nn

from penstock.device import RunAhead
from penstock.plan.types import Plan
from penstock.program import is_compute
from penstock.runtime.pipeline import Pipeline
from tests.support.late_device.device import NAME, Settings, take_host_waits
from tests.support.late_device.ranks import checked_device
from tests.support.runtime.models import KINDS

NUM_STEPS = 5
NUM_ROWS = 16


class Waiting(nn.Module):
    """A layer that waits for the device."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        torch.accelerator.synchronize()
        return out


def waits_of_step(kind: str, plan: Plan, settings: Settings, is_bounded: bool, has_wait: bool = False) -> list[str]:
    """Where the thread of training waits for the device in the last of some steps, its optimizer step excepted.

    Args:
        kind: The model.
        plan: The plan.
        settings: Those of the device.
        is_bounded: Whether the host runs at most two micro-batches ahead.
        has_wait: Whether a layer waits for the device.
    """
    with checked_device(settings), mock.patch.object(RunAhead, "note", RunAhead.note if is_bounded else _ignore):
        with torch.device(NAME):
            model = KINDS[kind].model()
        if has_wait:
            model[1] = Waiting(model[1])
        pipe = Pipeline(model, plan, KINDS[kind].loss, timeout_s=60)
        optimizer = pipe.optimizer(torch.optim.SGD, lr=1e-3)
        for step in range(NUM_STEPS):
            optimizer.zero_grad()
            torch.accelerator.synchronize()
            take_host_waits()
            pipe.step(*KINDS[kind].batch(step, NUM_ROWS))
            waits = take_host_waits()
            optimizer.step()
        pipe.close()
    return [wait.place for wait in waits if wait.is_main_thread]


def _ignore(_run_ahead: RunAhead) -> None: ...


def timeline_of_step(
    plan: Plan, settings: Settings
) -> tuple[list[str], list[float], list[float], dict[str, list[int]], float] | None:
    """On rank 0, the actions of the last of some steps: names, starts, ends, those that compute by device; seconds."""
    with checked_device(settings):
        with torch.device(NAME):
            model = KINDS["mlp"].model()
        pipe = Pipeline(model, plan, KINDS["mlp"].loss, timeout_s=60)
        optimizer = pipe.optimizer(torch.optim.SGD, lr=1e-3)
        for step in range(3):
            optimizer.zero_grad()
            torch.accelerator.synchronize()
            began_s = perf_counter()
            pipe.step(*KINDS["mlp"].batch(step, NUM_ROWS))
            optimizer.step()
            torch.accelerator.synchronize()
            step_s = perf_counter() - began_s
        timeline = pipe.last_timeline()
        pipe.close()
    if timeline is None:
        return None
    program = timeline.program
    computes = is_compute(program.kind)
    own = {
        device: [number for number in range(first, last) if computes[number]]
        for device, (first, last) in zip(program.devices, pairwise(program.offsets.tolist()), strict=True)
    }
    names = [program.name(number) for number in range(program.num_actions)]
    return names, timeline.start_s.tolist(), timeline.end_s.tolist(), own, step_s
