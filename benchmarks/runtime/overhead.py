"""What the runtime costs beside torch's kernels and transfers, by action, in processor time.

The models have as many blocks and torch calls as the real ones, but are so narrow that kernels take next to nothing. A
program is run by Penstock and by hand (`by_hand.py`) in turns; what the one takes more than the other, in processor
time of all threads but gloo's own, is divided by the number of actions. Waiting takes no processor time, so neither the
other rank nor other work on the machine counts. Gloo's threads transfer, and have a column of their own: they spin
while another thread holds a connection, for as long as the scheduler likes.
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
from benchmarks.runtime.torch_baseline import ByHand
from benchmarks.runtime.measurements import Spread, spread
from benchmarks.runtime.plans import with_cuts
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.stage_cuts import equal_cuts
from benchmarks.runtime.workloads import Subject, gpt, mlp, vgg
from penstock import Kind, Pipeline
from penstock.model import find_blocks
from penstock.profile import Overhead
from penstock.runtime.layout import PLACEHOLDER_KIND, placeholder_profile

NUM_MICROBATCHES = 8
LIMIT_S = 100e-6
JOB_S = 1e-3
"""Next to nothing beside the seconds of a neutral profile; but backwards are not parted for nothing then."""
TRANSPORT = "gloo_tcp_loop"
"""The name of the threads that transfer."""
SCHEDULES = ("1f1b", "zb_h1")
"""Whole backwards, and backwards in two parts."""


def _narrow_gpt() -> torch.nn.Sequential:
    return gpt(8, 16, 8, 32)


def _narrow_vgg() -> torch.nn.Sequential:
    return vgg((4, 4, 0, 4, 4, 0, 4, 4, 4, 0, 4, 4, 4, 0, 4, 4, 4, 0), 4)


def _narrow_mlp() -> torch.nn.Sequential:
    return mlp((8, 16, 8, 16, 8, 8, 16, 8, 16, 8, 16, 10))


NARROW = {
    "gpt": Subject("gpt", "GPT, 8 layers", _narrow_gpt, 2, (8,), 32, 1, is_tokens=True),
    "vgg": Subject("vgg", "VGG16-like", _narrow_vgg, 2, (3, 32, 32), 10, 1),
    "mlp": Subject("mlp", "MLP of 11", _narrow_mlp, 2, (8,), 10, 1),
}


class OverheadRun(msgspec.Struct, frozen=True, kw_only=True):
    """One model with one schedule."""

    title: str
    schedule: str
    num_actions: int
    """Of the busier rank, the optimizer's left out."""
    num_jobs: int
    """Those that compute."""
    beyond_s: tuple[float, ...]
    """What an iteration takes beyond the one by hand, round by round; transport left out."""
    by_hand_s: float
    transport_beyond_s: float
    """The median of what gloo's threads take beyond."""

    @property
    def per_action_s(self) -> Spread:
        return spread([value / self.num_actions for value in self.beyond_s])


def run_overhead(name: str, rounds: int) -> list[OverheadRun]:
    """Measure a model with every schedule; of the two ranks the costlier one counts."""
    with Ranks() as ranks:
        runs: list[list[OverheadRun]] = [ranks.on_all(measure, NARROW[name], item, rounds) for item in SCHEDULES]
    return [max(found, key=lambda run: run.per_action_s.middle) for found in runs]


def measure(_memory: dict[str, Any], subject: Subject, schedule: str, rounds: int) -> OverheadRun:
    """On a rank: Penstock and by hand, in turns."""
    mine = narrow_pipeline(subject, schedule)
    cut = mine.proof.program.plan.stages[0].stop
    with torch.no_grad():
        sample = torch.nn.Sequential(*list(subject.model())[:cut])(subject.batch(0, 1)[0])
    device = mine.proof.program.devices[dist.get_rank()]
    by_hand = ByHand(subject, cut, list(mine.proof.program.actions(device)), sample.shape, dist.new_group([0, 1]))
    batch = subject.batch(0, NUM_MICROBATCHES)
    ours, hands = [], []
    # The first rounds tell the forms of messages and warm everything up.
    for _ in range(rounds + 3):
        hands.append(_spent(lambda: by_hand.iteration(*batch, NUM_MICROBATCHES)))
        ours.append(_spent(lambda: mine.step(*batch)))
    mine.close()
    rounds_done = list(zip(ours[3:], hands[3:], strict=True))
    actions = [action.kind for action in mine.proof.program.actions(device) if action.kind != Kind.STEP]
    return OverheadRun(
        title=subject.title,
        schedule=schedule,
        num_actions=len(actions),
        num_jobs=sum(kind < Kind.STEP for kind in actions),
        beyond_s=tuple(one.own_s - other.own_s for one, other in rounds_done),
        by_hand_s=statistics.median(other.own_s for _, other in rounds_done),
        transport_beyond_s=statistics.median(one.transport_s - other.transport_s for one, other in rounds_done),
    )


def narrow_pipeline(subject: Subject, schedule: str, num_microbatches: int = NUM_MICROBATCHES) -> Pipeline:
    """A pipeline of equal layers on two ranks. As in measured profiles, a job costs something beside its units."""
    model = subject.model()
    spent = Overhead(kind=PLACEHOLDER_KIND, job_s=JOB_S, message_s=0.0, byte_s=0.0)
    profile = msgspec.structs.replace(placeholder_profile(find_blocks(model), subject.rows), overheads=(spent,))
    cluster = penstock.load_cluster("2 x device @ 1 GB/s")
    uniform = penstock.plan(profile, cluster, num_microbatches, planner="uniform", schedule=schedule)
    plan = with_cuts(uniform, equal_cuts(profile.num_units, 2, int(subject.is_tokens)))
    return Pipeline(model, plan, subject.loss, profile=profile, cluster=cluster, timeout_s=60)


class _Spent(NamedTuple):
    own_s: float
    transport_s: float


def _spent(work: Any) -> _Spent:
    """Processor seconds of this process."""
    dist.barrier()
    transport, began = _transport_s(), process_time()
    work()
    total, transport = process_time() - began, _transport_s() - transport
    return _Spent(total - transport, transport)


def _transport_s() -> float:
    """Processor seconds of gloo's threads so far."""
    tasks = Path("/proc/self/task")
    found = []
    for task in tasks.iterdir():
        # Other threads may end meanwhile.
        with suppress(OSError):
            if (task / "comm").read_text().strip() == TRANSPORT:
                found.append(int((task / "schedstat").read_text().split()[0]))
    assert found, "gloo's threads have another name here"
    return sum(found) * 1e-9


def against_limit(runs: list[OverheadRun]) -> Iterator[Result]:
    """Every model and schedule."""
    for run in runs:
        found = run.per_action_s
        low, middle, high = (value * 1e6 for value in found)
        yield Result(
            f"{run.title}, {run.schedule}: runtime's own cost per action ({run.num_actions} an iteration)",
            f"< {LIMIT_S * 1e6:.0f} us",
            f"{middle:.0f} us [{low:.0f}, {high:.0f}]",
            found.middle < LIMIT_S,
        )
