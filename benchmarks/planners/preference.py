"""The planner auto with a measured spread: what its preference of simple plans costs by simulated time.

Random chains of layers on two to four equal devices. The plan of auto is compared with every other planner and
schedule. It may be slower by simulated time, but at most by the uncertainty of the comparison and the known excess of
intricate plans.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from benchmarks.results import Result
from penstock.cluster import load_cluster
from penstock.errors import PenstockError
from penstock.planners.api import solve
from penstock.planners.search_space import SearchSpace
from penstock.profile import Profile, Sizes, Times, Unit, measured_spread
from penstock.simulate import Prediction, evaluate_costs, predict

PLANNERS = ("uniform", "balanced", "pipedream", "dapple", "spp", "bipartition")
SCHEDULES = ("1f1b", "zb_h1", "zb_v", "auto")
SPACE = SearchSpace(replication=False)
ROUNDING = 1e-9
NUM_SAMPLES = 60


class Case(NamedTuple):
    """The plan of auto for a chain, against the best of the other planners."""

    slower: float
    """By which part the plan of auto is slower by simulated time; negative if it is faster."""
    allowed: float
    """The uncertainty of the comparison and the excess that the other plan has more."""
    has_declined: bool


def check_preference(*, quick: bool = False) -> Iterator[Result]:
    """The targets of this part."""
    cases = [_run(seed) for seed in range(6 if quick else 60)]
    beyond = [case for case in cases if case.slower > case.allowed + ROUNDING]
    most = max(case.slower for case in cases)
    yield Result(
        f"auto with a measured spread over other planners, {len(cases)} chains",
        "0 beyond",
        f"{len(beyond)} beyond the uncertainty; at most {most:.1%} slower",
        not beyond,
    )
    declined = sum(case.has_declined for case in cases)
    print(f"  in {declined} of {len(cases)} cases a faster plan by simulated time was declined")


def _profile(seed: int) -> Profile:
    random = Random(seed)
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=1 << 20,
            sizes=(Sizes(micro_batch_size=1, cut_bytes=1 << 20, saved_bytes=1 << 22),),
            times=(
                Times(
                    kind="cpu",
                    micro_batch_size=1,
                    forward_s=random.uniform(5e-3, 2e-2),
                    input_grad_s=random.uniform(5e-3, 2e-2),
                    weight_grad_s=random.uniform(5e-3, 2e-2),
                    step_s=1e-3,
                ),
            ),
        )
        for number in range(random.randint(3, 9))
    )
    noise = [0.03] * len(units)
    spread = measured_spread(noise, noise, noise, noise)
    return Profile(name=f"chain {seed}", micro_batch_size=1, units=units, spread=spread)


def _run(seed: int) -> Case:
    profile = _profile(seed)
    cluster = load_cluster(f"{2 + seed % 3} x cpu @ 5 GB/s")
    chosen = solve(profile, cluster, 8, search_space=SPACE, work=60)
    own = predict(evaluate_costs(chosen.costs, program=chosen.program).proof, profile, num_samples=NUM_SAMPLES)
    best = None
    for planner in PLANNERS:
        for schedule in SCHEDULES:
            try:
                found = solve(profile, cluster, 8, planner=planner, schedule=schedule, search_space=SPACE)
            except PenstockError:
                continue  # outside the search space, or too few layers
            other = predict(evaluate_costs(found.costs, program=found.program).proof, profile, num_samples=NUM_SAMPLES)
            if best is None or other.simulated_s < best.simulated_s:
                best = other
    assert best is not None, "balanced + 1f1b always runs"
    return Case(
        own.simulated_s / best.simulated_s - 1,
        (1 + own.uncertainty_over(best)) * (1 + best.excess) / (1 + own.excess) * _stretch(best) / _stretch(own) - 1,
        bool(chosen.declined),
    )


def _stretch(prediction: Prediction) -> float:
    """The mean over errors, relative to the simulation with the profile's own times."""
    return float(prediction.samples_s.mean()) / prediction.simulated_s
