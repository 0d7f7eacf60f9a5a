"""The runtime's own cost per action, in CPU time, without torch's kernels and transfers.

The models have as many blocks and torch calls as the real ones, but are so narrow that kernels take almost no time.
Penstock and a plain torch implementation (`torch_baseline.py`) run the same program in turns. The difference of their
CPU times, without gloo's threads, is divided by the number of actions. Waiting takes no CPU time, so neither the other
rank nor other work on the machine counts. Gloo's threads have a column of their own: they spin while another thread
holds a connection, for as long as the scheduler lets them.
"""

import statistics
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist

import penstock
from benchmarks.results import Result
from benchmarks.runtime.measurements import Spread, spread
from benchmarks.runtime.plans import with_cuts
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.stage_cuts import equal_cuts
from benchmarks.runtime.torch_baseline import TorchBaseline
from benchmarks.runtime.workloads import Workload, gpt, mlp, vgg
from penstock import Kind, Pipeline
from penstock.model import find_blocks
from penstock.profile import Overhead
from penstock.runtime.layout import PLACEHOLDER_KIND, placeholder_profile

NUM_MICROBATCHES = 8
LIMIT_S = 100e-6
JOB_S = 1e-3
"""Little beside the seconds of the placeholder profile, but enough that a backward is not split without a gain."""
TRANSPORT = "gloo_tcp_loop"
"""The name of gloo's threads."""
SCHEDULES = ("1f1b", "zb_h1")
"""One with fused and one with split backwards."""


def _narrow_gpt() -> torch.nn.Sequential:
    return gpt(8, 16, 8, 32)


def _narrow_vgg() -> torch.nn.Sequential:
    return vgg((4, 4, 0, 4, 4, 0, 4, 4, 4, 0, 4, 4, 4, 0, 4, 4, 4, 0), 4)


def _narrow_mlp() -> torch.nn.Sequential:
    return mlp((8, 16, 8, 16, 8, 8, 16, 8, 16, 8, 16, 10))


NARROW = {
    "gpt": Workload("gpt", "GPT, 8 layers", _narrow_gpt, 2, (8,), 32, 1, is_tokens=True),
    "vgg": Workload("vgg", "VGG16-like", _narrow_vgg, 2, (3, 32, 32), 10, 1),
    "mlp": Workload("mlp", "MLP of 11", _narrow_mlp, 2, (8,), 10, 1),
}


class OverheadRun(msgspec.Struct, frozen=True, kw_only=True):
    """One model with one schedule."""

    title: str
    schedule: str
    num_actions: int
    """Actions of this rank, without optimizer steps."""
    num_jobs: int
    """Compute actions."""
    beyond_s: tuple[float, ...]
    """CPU time beyond that of the torch baseline, by round, without gloo's threads."""
    torch_baseline_s: float
    transport_beyond_s: float
    """The median CPU time of gloo's threads beyond that of the torch baseline."""

    @property
    def per_action_s(self) -> Spread:
        return spread([value / self.num_actions for value in self.beyond_s])


def run_overhead(name: str, rounds: int) -> list[OverheadRun]:
    """Measure a model with every schedule. The rank with the higher cost counts."""
    with Ranks() as ranks:
        runs: list[list[OverheadRun]] = [ranks.on_all(measure, NARROW[name], item, rounds) for item in SCHEDULES]
    return [max(by_rank, key=lambda run: run.per_action_s.middle) for by_rank in runs]


def measure(_memory: dict[str, Any], workload: Workload, schedule: str, rounds: int) -> OverheadRun:
    """Measure Penstock and the torch baseline in turns, on one rank."""
    mine = narrow_pipeline(workload, schedule)
    cut = mine.proof.program.plan.stages[0].stop
    with torch.no_grad():
        sample = torch.nn.Sequential(*list(workload.model())[:cut])(workload.batch(0, 1)[0])
    device = mine.proof.program.devices[dist.get_rank()]
    torch_baseline = TorchBaseline(
        workload, cut, list(mine.proof.program.actions(device)), sample.shape, dist.new_group([0, 1])
    )
    batch = workload.batch(0, NUM_MICROBATCHES)
    ours, hands = [], []
    # The first rounds exchange the shapes of messages and are a warm-up.
    for _ in range(rounds + 3):
        hands.append(_spent(lambda: torch_baseline.iteration(*batch, NUM_MICROBATCHES)))
        ours.append(_spent(lambda: mine.step(*batch)))
    mine.close()
    rounds_done = list(zip(ours[3:], hands[3:], strict=True))
    actions = [action.kind for action in mine.proof.program.actions(device) if action.kind != Kind.STEP]
    return OverheadRun(
        title=workload.title,
        schedule=schedule,
        num_actions=len(actions),
        num_jobs=sum(kind < Kind.STEP for kind in actions),
        beyond_s=tuple(one.own_s - other.own_s for one, other in rounds_done),
        torch_baseline_s=statistics.median(other.own_s for _, other in rounds_done),
        transport_beyond_s=statistics.median(one.transport_s - other.transport_s for one, other in rounds_done),
    )


def narrow_pipeline(workload: Workload, schedule: str, num_microbatches: int = NUM_MICROBATCHES) -> Pipeline:
    """A pipeline of equal layers on two ranks, whose profile has an overhead per job, as measured ones have."""
    model = workload.model()
    spent = Overhead(kind=PLACEHOLDER_KIND, job_s=JOB_S, message_s=0.0, byte_s=0.0)
    profile = msgspec.structs.replace(placeholder_profile(find_blocks(model), workload.rows), overheads=(spent,))
    cluster = penstock.load_cluster("2 x device @ 1 GB/s")
    uniform = penstock.plan(profile, cluster, num_microbatches, planner="uniform", schedule=schedule)
    plan = with_cuts(uniform, equal_cuts(profile.num_units, 2, int(workload.is_tokens)))
    return Pipeline(model, plan, workload.loss, profile=profile, cluster=cluster, timeout_s=60)


class _Spent(NamedTuple):
    own_s: float
    transport_s: float


def _spent(work: Any) -> _Spent:
    """The CPU time of a call, in this process."""
    dist.barrier()
    transport, start_time = _transport_s(), process_time()
    work()
    total, transport = process_time() - start_time, _transport_s() - transport
    return _Spent(total - transport, transport)


def _transport_s() -> float:
    """The CPU time of gloo's threads so far."""
    tasks = Path("/proc/self/task")
    nanoseconds = []
    for task in tasks.iterdir():
        # Other threads may end in the meantime.
        with suppress(OSError):
            if (task / "comm").read_text().strip() == TRANSPORT:
                nanoseconds.append(int((task / "schedstat").read_text().split()[0]))
    assert nanoseconds, "gloo's threads have another name"
    return sum(nanoseconds) * 1e-9


def check_overhead(runs: list[OverheadRun]) -> Iterator[Result]:
    """Every model and schedule."""
    for run in runs:
        per_action = run.per_action_s
        low, middle, high = (value * 1e6 for value in per_action)
        yield Result(
            f"{run.title}, {run.schedule}: runtime's own cost per action ({run.num_actions} an iteration)",
            f"< {LIMIT_S * 1e6:.0f} us",
            f"{middle:.0f} us [{low:.0f}, {high:.0f}]",
            per_action.middle < LIMIT_S,
        )
