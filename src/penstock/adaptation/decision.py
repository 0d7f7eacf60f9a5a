"""Whether another plan gains more than changing to it costs: a pure function of what was measured.

1. The estimated speeds give a cluster (estimated_cluster.py), and a planner a plan for it.
2. Both plans are simulated on it. The ratio of the two is applied to the measured time of the running plan.
3. The uncertainty of both predictions is that of the measured time, that of the speeds (both plans are simulated with
   speeds drawn within their errors), and the relative difference between the measured and the simulated time of the
   running plan: what the model does not explain for one plan, it may not explain for the other. If the last change of
   plans gained less than expected, that difference counts instead.
4. The change is worth it if the gain, less the uncertainty, exceeds the cost, spread over the remaining steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from penstock.adaptation.estimated_cluster import with_speeds
from penstock.adaptation.moves import find_moves, move_seconds
from penstock.adaptation.speeds import MEDIAN_ERROR, MIN_NOISE, Speeds
from penstock.cluster import Cluster
from penstock.errors import PenstockError
from penstock.plan.pricing import price
from penstock.profile import Profile
from penstock.simulate import Evaluation, evaluate_costs
from penstock.units import show_bytes, show_percent, show_seconds

MIN_GAIN = 0.02
"""A smaller gain, as a fraction of an iteration, is not worth a change of plans."""
MODEL_ERROR = 0.01
"""The simulator's own error, relative to measured iterations of devices that keep their speed."""
STANDARD_ERRORS = 2.0
DRAWS = 12

Replan = Callable[[Cluster], Evaluation]
"""Plans for a cluster, and evaluates the plan on it."""


class Decision(NamedTuple):
    """A decision and its numbers. Seconds are of one iteration unless stated otherwise."""

    switch: bool
    """Whether the other plan is worth changing to."""
    reason: str
    """Why not; empty if it is."""
    measured_s: float
    predicted_s: float
    """The running plan, simulated with the estimated speeds."""
    new_s: float
    """The other plan, as it is expected to be measured."""
    gain_s: float
    uncertainty_s: float
    cost_s: float
    """Of the change, once."""
    moved_bytes: float
    remaining_steps: int
    changes: tuple[str, ...]
    """The devices and links whose speed is not as declared."""

    @property
    def sentence(self) -> str:
        """The decision with its numbers, in one sentence."""
        speeds = "; ".join(self.changes[:3]) + (f" and {len(self.changes) - 3} more" if len(self.changes) > 3 else "")
        figures = (
            f"an iteration takes {show_seconds(self.measured_s)} (simulated {show_seconds(self.predicted_s)}), "
            f"{show_seconds(self.new_s)} with another plan: gain {show_seconds(self.gain_s)} "
            f"({show_percent(self.gain_s / self.measured_s)}), uncertainty {show_seconds(self.uncertainty_s)}, cost "
            f"{show_seconds(self.cost_s)} once ({show_bytes(self.moved_bytes)} move), {self.remaining_steps:,} steps "
            "left"
        )
        verdict = "worth a change of plans" if self.switch else f"not worth a change of plans: {self.reason}"
        return f"{speeds or 'all speeds as declared'}: {figures}; {verdict}"


@dataclass(frozen=True, eq=False)
class Situation:
    """What a decision is made from.

    Attributes:
        running: The plan that runs, evaluated on the cluster that it was made for.
        profile: Its profile.
        cluster: The declared cluster.
        speeds: The estimated speeds.
        iterations_s: Measured seconds of the last iterations of this plan.
        remaining_steps: Steps that are left.
        restart_s: Seconds that a change takes beside moving state.
        surprise: Relative difference of measured and expected time after the last change of plans.
    """

    running: Evaluation
    profile: Profile
    cluster: Cluster
    speeds: Speeds
    iterations_s: Sequence[float]
    remaining_steps: int
    restart_s: float
    surprise: float = 0.0


def decide(situation: Situation, replan: Replan) -> tuple[Decision, Evaluation | None]:
    """Decide whether to change plans.

    Args:
        situation: What was measured, and what runs.
        replan: Plans for a cluster.

    Returns:
        The decision, and the other plan, evaluated on the estimated cluster; None if there is none.
    """
    believed = with_speeds(situation.cluster, situation.speeds)
    measured_s = float(np.median(situation.iterations_s))
    predicted_s = _iteration_s(situation.running, situation.profile, believed)
    changes = tuple(situation.speeds.changes(Speeds()))
    nothing = Decision(
        False, "", measured_s, predicted_s, measured_s, 0.0, 0.0, 0.0, 0.0, situation.remaining_steps, changes
    )
    try:
        candidate = replan(believed)
    except PenstockError as error:
        return nothing._replace(reason=f"there is no other plan ({error.what})"), None
    new_s = candidate.timeline.iteration_s * measured_s / predicted_s
    noise_s = _median_error(situation.iterations_s) * measured_s
    mismatch = max(abs(math.log(measured_s / predicted_s)), situation.surprise)
    drawn = _drawn_error(situation, candidate)
    parts = (STANDARD_ERRORS * noise_s, STANDARD_ERRORS * drawn * new_s, mismatch * new_s, MODEL_ERROR * new_s)
    moves = find_moves(situation.running.costs.plan, candidate.costs.plan, situation.profile, situation.cluster)
    decision = nothing._replace(
        new_s=new_s,
        gain_s=measured_s - new_s,
        uncertainty_s=math.hypot(*parts),
        cost_s=move_seconds(moves, believed) + situation.restart_s,
        moved_bytes=sum(move.num_bytes for move in moves),
    )
    reason = _objection(decision)
    return decision._replace(switch=not reason, reason=reason), candidate


def _objection(decision: Decision) -> str:
    """Why a change is not worth it; empty if it is."""
    sure_s = decision.gain_s - decision.uncertainty_s
    if decision.gain_s < MIN_GAIN * decision.measured_s:
        return "no plan is clearly faster"
    if sure_s <= 0:
        return "the gain is smaller than the uncertainty of the predictions"
    if sure_s * decision.remaining_steps <= decision.cost_s:
        return "the steps left do not make up for the cost"
    return ""


def evaluate_on(evaluation: Evaluation, profile: Profile, cluster: Cluster) -> Evaluation:
    """Evaluate the program of an evaluation, with the rings that it has, on a cluster with other speeds."""
    rings = tuple(item.ring.devices for item in evaluation.costs.reductions)
    costs = replace(price(evaluation.costs.plan, profile, cluster, strict=False), ring_orders=rings)
    return evaluate_costs(costs, program=evaluation.program, within_memory=False)


def _iteration_s(evaluation: Evaluation, profile: Profile, cluster: Cluster) -> float:
    return evaluate_on(evaluation, profile, cluster).timeline.iteration_s


def _drawn_error(situation: Situation, candidate: Evaluation) -> float:
    """The relative standard error of the ratio of both predictions, over speeds drawn within their errors."""
    generator = np.random.default_rng(0)
    ratios = []
    for _ in range(DRAWS):
        cluster = with_speeds(situation.cluster, situation.speeds.drawn(generator), only_different=False)
        new_s = _iteration_s(candidate, situation.profile, cluster)
        ratios.append(math.log(new_s / _iteration_s(situation.running, situation.profile, cluster)))
    return float(np.std(ratios))


def _median_error(iterations_s: Sequence[float]) -> float:
    """The relative standard error of the median of some iterations."""
    logs = np.log(iterations_s)
    deviation = max(MIN_NOISE, 1.4826 * float(np.median(np.abs(logs - np.median(logs)))))
    return MEDIAN_ERROR * deviation / math.sqrt(len(iterations_s))
