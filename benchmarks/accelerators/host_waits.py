"""Part host_waits: where the host of a rank waits for its device between the first forward and the loss of a step."""

from collections.abc import Iterator

from benchmarks.results import Result
from tests.support.late_device import Settings
from tests.support.late_device.build import build
from tests.support.late_device.host_waits import waits_of_step
from tests.support.late_device.ranks import GROUP_BACKEND, prepare_rank
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.user_models import plan_of

PLANS = {
    "1f1b": ("mlp", plan_of([0, 3, 7], [["d0"], ["d1"]], num_microbatches=4)),
    "split and remote": (
        "mlp",
        plan_of([0, 4, 7], [["d0"], ["d1"]], backward=[["d1"], ["d0"]], schedule="zb_h1", num_microbatches=4),
    ),
    "tied": ("gpt", plan_of([0, 2, 5], [["d0"], ["d1"]], schedule="zb_h1", num_microbatches=4)),
}
AT_THE_END = ("read <", "finish <")
"""Where an iteration may wait when everything of it is queued: the loss, and the flags of gradient reductions."""


def check_host_waits(*, quick: bool) -> Iterator[Result]:
    """Count the waits of the host in the last of some steps, on the device that runs only what somebody waits for."""
    build()
    pool = RankPool(backend=GROUP_BACKEND, prepare=prepare_rank)
    try:
        for name, (kind, plan) in list(PLANS.items())[: 1 if quick else None]:
            ranks = pool.run(2, waits_of_step, kind, plan, Settings(pace="lazy"), False)
            middle = [place for waits in ranks for place in waits if not any(f" {end}" in place for end in AT_THE_END)]
            yield Result(f"waits of the hosts before the loss, {name}", "0", f"{len(middle)}", not middle)
        kind, plan = PLANS["1f1b"]
        ranks = pool.run(2, waits_of_step, kind, plan, Settings(pace="lazy"), False, True)
        found = sum("forward <" in place for waits in ranks for place in waits)
        yield Result("the same with a layer that waits in its forward", "found", f"{found}", found > 0)
    finally:
        pool.close()
