"""Runs whose profile, timeline or messages are inspected, as functions that ranks run."""

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from penstock.plan.types import Plan
from penstock.runtime.tensors.packing import pack
from penstock.runtime.transport.process_groups import ProcessGroups, open_process_groups
from penstock.runtime.transport.transport import TorchTransport
from tests.support.runtime.models import KINDS
from tests.support.runtime.user_models import make


def profiled_ranges(plan: Plan) -> tuple[list[str], list[str]]:
    """Profile one step; return this rank's ranges named PP:..., and its actions."""
    pipe = make("mlp", plan)
    optimizer = pipe.optimizer(torch.optim.SGD, lr=0.1)
    pipe.step(*KINDS["mlp"].batch(0, 12))
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        pipe.step(*KINDS["mlp"].batch(1, 12))
    pipe.close()
    actions = pipe.proof.program.actions(f"d{dist.get_rank()}")
    names = [item.name for item in profiler.events() or () if item.name.startswith("PP:")]
    return names, [str(action) for action in actions]


def small_batch_timeline(plan: Plan, num_rows: int) -> tuple[list[str], list[float], list[float]] | None:
    """Return actions, starts and ends of a step in which some replicas have no rows; None unless this is rank 0."""
    pipe = make("mlp", plan)
    pipe.step(*KINDS["mlp"].batch(0, num_rows))
    timeline = pipe.last_timeline()
    pipe.close()
    if timeline is None:
        return None
    names = [timeline.program.name(action) for action in range(timeline.program.num_actions)]
    return names, timeline.start_s.tolist(), timeline.end_s.tolist()


def exchange_empty_tensors(backend: str) -> list[tuple[list[list[int]], list[float]]]:
    """Rank 0 sends payloads with empty tensors to rank 1, which returns shapes and values of what it received."""
    rank, device = dist.get_rank(), torch.device("cpu")
    control = dist.new_group([0, 1], backend="gloo")
    groups = ProcessGroups(control)
    if backend != "gloo":
        groups, _ = open_process_groups(control, backend, [(0, 1)], [], device=device, timeout_s=10.0)
    transport = TorchTransport(groups, device, 10.0)
    payloads: list[list[Tensor]] = [
        [torch.empty(0, 3), torch.arange(4.0), torch.empty(2, 0)],
        [torch.empty(0)],
        [torch.ones(1), torch.empty(0, 2), torch.full((2,), 7.0)],
    ]
    received = []
    for _ in range(3):
        pending = [transport.irecv(0, 5, tag, _describe) for tag in range(len(payloads))] if rank else []
        if not rank:
            for tag, tensors in enumerate(payloads):
                transport.send(pack(tensors)[0], 1, 5, tag, _describe)
        for item in pending:
            tensors = list(item.wait().tensors)
            received.append(
                ([list(one.shape) for one in tensors], torch.cat([one.reshape(-1) for one in tensors]).tolist())
            )
    # Everything that was sent must have been received, or this times out.
    transport.close()
    return received


def _describe() -> str:
    return f"rank {dist.get_rank()}, exchanges empty tensors"
