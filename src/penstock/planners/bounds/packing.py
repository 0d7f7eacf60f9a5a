"""A lower bound from jobs that cannot be divided, if nothing is replicated.

*Whole jobs.* All M of F of a unit are on one device, and so are all of its I, W and step (or all of it, if backwards
are not moved). Count in prices y_d: if device d does jobs of t_j seconds within T, then sum y_d t_j <= y_d T; let s_j
be the least of y_d t_j over all devices. Whole numbers keep less: for any scale k, the sum of floor(k s_j) over the
jobs of d is at most floor(k y_d T), so over all jobs it is at most the sum of floor(k y_d T) over all devices. Where it
is more, T is too short. A scale is worth trying where it makes some job a whole number.

*Waits* at the beginning are things that a device has to fit in as well, each on a device of its own (`bounds_work.py`).

*Few large jobs.* Of any k D + 1 jobs, k + 1 are on one of D devices.
"""

import numpy as np

from penstock.arrays import Floats
from penstock.planners.bounds.bisection import least_possible
from penstock.planners.bounds.unit_seconds import UnitTimes
from penstock.planners.bounds.work import jobs_of

SIZES, MULTIPLES = 48, 6
ROUNDING = 1e-9
NEGLIGIBLE = 1e-6
"""Jobs this much smaller than the largest set no scale."""


def packing_bound(times: UnitTimes, waits: Floats, *, moved: bool) -> float:
    """The largest such bound; waits: the least ones before the devices' first jobs."""
    jobs = jobs_of(times, 0.0, moved)
    largest = _large(np.sort(jobs.min(axis=0))[::-1], len(jobs))
    all_s = jobs.sum(axis=1)
    if all_s.min() <= 0:
        return largest
    price = all_s.min() / all_s
    sizes = np.concatenate([(price[:, None] * jobs).min(axis=0), price.min() * waits])
    sizes = sizes[sizes > 0]
    tried = np.unique(np.quantile(sizes[sizes >= NEGLIGIBLE * sizes.max()], np.linspace(0, 1, SIZES), method="higher"))
    scales = np.outer(np.arange(1, MULTIPLES + 1), 1 / tried).ravel()
    counts = np.floor(sizes[None, :] * scales[:, None] * (1 + ROUNDING / 2)).sum(axis=1)

    def possible(limit_s: float) -> bool:
        kept = np.floor(limit_s * (1 + ROUNDING) * price[None, :] * scales[:, None])
        return bool((counts <= kept.sum(axis=1)).all())

    return least_possible(possible, max(largest, float(sizes.sum() / price.sum())), float(sizes.sum()))


def _large(seconds: Floats, num_devices: int) -> float:
    counts = range((len(seconds) - 1) // num_devices + 1)
    return float(max(seconds[: k * num_devices + 1][-(k + 1) :].sum() for k in counts))
