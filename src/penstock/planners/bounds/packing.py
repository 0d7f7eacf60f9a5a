"""A lower bound from indivisible jobs, for plans without replication.

*Indivisible jobs.* Without replication one device runs F of a layer for all M micro-batches, and one device runs its I,
W and step (the same device if backwards are not remote). Price device d at y_d: if it runs jobs of t_j seconds within
T, then sum y_d t_j <= y_d T. Let s_j be the least of y_d t_j over all devices. Rounding down tightens the inequality:
for any scale k, the sum of floor(k s_j) over the jobs of d is at most floor(k y_d T), so the sum over all jobs is at
most the sum of floor(k y_d T) over all devices. Where it is larger, T is infeasible. The scales that matter are those
that make some k s_j an integer.

*Waits* before the first job occupy a device like jobs do, each on a device of its own (`work.py`).

*Few large jobs.* Of any k D + 1 jobs, k + 1 are on one of D devices.
"""

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.bisection import least_possible
from penstock.planners.bounds.unit_seconds import UnitTimes
from penstock.planners.bounds.work import job_seconds

SIZES, MULTIPLES = 48, 6
ROUNDING = 1e-9
NEGLIGIBLE = 1e-6
"""Jobs that are smaller than this fraction of the largest do not define a scale."""


def packing_bound(times: UnitTimes, waits: Floats, *, remote_backward: bool) -> float:
    """The largest packing bound; `waits` are the least waits before the devices' first jobs."""
    jobs = job_seconds(times, 0.0, remote_backward)
    largest = _large(np.sort(jobs.min(axis=0))[::-1], len(jobs))
    all_s = jobs.sum(axis=1)
    if all_s.min() <= 0:
        return largest
    price = all_s.min() / all_s
    sizes = np.concatenate([(price[:, None] * jobs).min(axis=0), price.min() * waits])
    sizes = sizes[sizes > 0]
    if not len(sizes):  # every job is free on some device
        return largest
    tried = np.unique(np.quantile(sizes[sizes >= NEGLIGIBLE * sizes.max()], np.linspace(0, 1, SIZES), method="higher"))
    scales = np.outer(np.arange(1, MULTIPLES + 1), 1 / tried).ravel()
    counts = np.floor(sizes[None, :] * scales[:, None] * (1 + ROUNDING / 2)).sum(axis=1)

    def possible(limit_s: float) -> bool:
        kept = np.floor(limit_s * (1 + ROUNDING) * price[None, :] * scales[:, None])
        return bool((counts <= kept.sum(axis=1)).all())

    return least_possible(possible, max(largest, float(sizes.sum() / price.sum())), float(sizes.sum()))


def _large(seconds: Floats, num_devices: int) -> float:
    """The bound from few large jobs; `seconds` are sorted, the longest first."""
    counts = range((len(seconds) - 1) // num_devices + 1)
    return float(max(seconds[: k * num_devices + 1][-(k + 1) :].sum() for k in counts))
