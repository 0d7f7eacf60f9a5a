"""Pipelines made and closed in one process: descriptors, threads and memory stay the same."""

from collections.abc import Iterator

from benchmarks.results import Result
from tests.support.runtime.rank_pool import RankPool
from tests.support.runtime.repeated_pipelines import Held, make_and_close
from tests.support.runtime.user_models import plan_of

NUM_PIPELINES, NUM_QUICK, AT_ONCE = 300, 30, 10


def check_pipelines(*, quick: bool) -> Iterator[Result]:
    """Make and close pipelines of two ranks, with a replicated stage."""
    count = NUM_QUICK if quick else NUM_PIPELINES
    pool = RankPool()
    try:
        plan = plan_of([0, 2, 4], [["d0", "d1"], ["d1"]])
        # Each call has the pool's deadline. The processes are the same.
        found: list[list[Held]] = [
            [moment for (moment,) in pool.run(2, make_and_close, plan, AT_ONCE, (AT_ONCE,))]
            for _ in range(0, count, AT_ONCE)
        ]
    finally:
        pool.close()
    early, late = (Held(*map(max, zip(*found[moment], strict=True))) for moment in (0, -1))
    for what in ("descriptors", "threads", "mapped_bytes"):
        more = getattr(late, what) - getattr(early, what)
        name = f"{what.replace('_', ' ')} after {count} pipelines, beyond those after {AT_ONCE}"
        yield Result(name, "0", str(more), more <= 0)
    ratio = late.resident_bytes / early.resident_bytes
    name = f"resident memory after {count} pipelines, over that after {AT_ONCE}"
    yield Result(name, "1.05", f"{ratio:.3f}", ratio <= 1.05)
