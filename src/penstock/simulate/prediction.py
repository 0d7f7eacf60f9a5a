"""The iteration time under what is known of the errors of a profile: many simulations with perturbed times.

Every sample multiplies the time of each action by an error of its device, one of its stage and direction, and noise of
its own; every transfer by an error of its link. The errors of devices, stages and links stay the same for all
micro-batches of a sample. The error that all times share is added at the end: it scales every sample alike.

The interval is that of a log-normal distribution with the mean and variance of the samples, so 20 of them suffice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import msgspec
import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan import Complexity, complexity_of
from penstock.profile import Profile, Spread
from penstock.program import Kind, durations
from penstock.program.dependencies import Dependencies
from penstock.program.engine import Run, execute, execute_plainly
from penstock.program.proof import Proof
from penstock.simulate.draws import cause_factors, noise_factors

LEVEL = 0.9
"""The share of iterations that a predicted interval should hold."""
FEWEST, MOST = 20, 200
ACTIONS_IN_ALL = 1_000_000
"""Simulated actions over all samples, within these numbers of samples."""
DEVICE, STAGE, LINK, RING = range(4)
"""Causes of errors."""
_DIRECTIONS = 3
_DIRECTION = {Kind.F: 0, Kind.R: 1, Kind.I: 1, Kind.W: 1, Kind.B: 1, Kind.STEP: 2}
_PASSES = {
    Kind.F: ("forward",),
    Kind.R: ("forward",),
    Kind.I: ("input_grad",),
    Kind.W: ("weight_grad",),
    Kind.B: ("input_grad", "weight_grad"),
    Kind.STEP: ("step",),
}
Execute = Callable[..., Run]


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A predicted iteration time.

    Attributes:
        simulated_s: Of the simulation with the profile's own times.
        expected_s: The mean over all errors.
        low_s: The lower end of the interval.
        high_s: The upper end of the interval.
        level: The share of iterations that the interval should hold.
        num_samples: The number of perturbed simulations.
        seed: Their seed.
        reason: Where the errors are from.
    """

    simulated_s: float
    expected_s: float
    low_s: float
    high_s: float
    level: float
    num_samples: int
    seed: int
    reason: str


@dataclass(frozen=True, eq=False)
class Prediction:
    """The iteration times of perturbed simulations.

    Attributes:
        simulated_s: The simulation with the profile's own times.
        samples_s: The perturbed simulations, without the error that all times share, and without the excess.
        spread: The spread of the profile.
        seed: The seed.
        complexity: How intricate the plan is.
    """

    simulated_s: float
    samples_s: Floats
    spread: Spread
    seed: int
    complexity: Complexity

    @property
    def excess(self) -> float:
        """By how much iterations of such a plan take longer than predicted on average."""
        spread = self.spread
        virtual, remote = spread.excess_virtual, spread.excess_remote
        return spread.excess + virtual * (self.complexity.num_extra > 0) + remote * (self.complexity.num_remote > 0)

    @property
    def expected_s(self) -> float:
        """The mean over all errors."""
        return float(self.samples_s.mean()) * (1 + self.excess)

    def quantile(self, share: float) -> float:
        """The time that this share of iterations does not exceed."""
        if self.simulated_s <= 0 or not (self.samples_s > 0).all():
            return float(np.quantile(self.samples_s, share)) * (1 + self.excess)
        logs = np.log(self.samples_s)
        deviation = float(np.hypot(logs.std(), self.spread.iteration))
        middle = float(logs.mean()) + float(np.log1p(self.excess))
        return float(np.exp(middle + NormalDist().inv_cdf(share) * deviation))

    def uncertainty_over(self, other: "Prediction") -> float:
        """Relative standard deviation of the difference to a plan with the same number of samples and the same seed."""
        if not ((self.samples_s > 0).all() and (other.samples_s > 0).all()):
            return 0.0
        return float(np.log(self.samples_s / other.samples_s).std())

    @property
    def interval(self) -> Interval:
        """The interval that holds `LEVEL` of all iterations."""
        return Interval(
            simulated_s=self.simulated_s,
            expected_s=self.expected_s,
            low_s=self.quantile((1 - LEVEL) / 2),
            high_s=self.quantile((1 + LEVEL) / 2),
            level=LEVEL,
            num_samples=len(self.samples_s),
            seed=self.seed,
            reason=self.spread.reason,
        )


def predict(proof: Proof, profile: Profile, *, seed: int = 0, num_samples: int | None = None) -> Prediction:
    """Predict the iteration time of a proved program with its uncertainty.

    Args:
        proof: The proof of a lowered program.
        profile: The profile that it was priced with; its `spread` states the errors.
        seed: The seed of the errors. The same seed gives the same prediction.
        num_samples: The number of perturbed simulations; by default 20 for large programs and up to 200 for small ones.

    Returns:
        The prediction.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["T4"], micro_batch_size=4)
        >>> cluster = penstock.load_cluster("2 x T4 @ 10 GB/s")
        >>> plan = penstock.plan(profile, cluster, 4, planner="balanced")
        >>> interval = predict(penstock.evaluate(plan, profile, cluster).proof, profile).interval
        >>> interval.low_s < interval.simulated_s < interval.high_s
        True
    """
    return _predict(proof, profile, seed, num_samples, execute)


def predict_plainly(proof: Proof, profile: Profile, *, seed: int = 0, num_samples: int | None = None) -> Prediction:
    """The same without compiled code: equal to the bit."""
    return _predict(proof, profile, seed, num_samples, execute_plainly)


def _predict(proof: Proof, profile: Profile, seed: int, num_samples: int | None, run: Execute) -> Prediction:
    if num_samples is None:
        num_samples = max(FEWEST, min(MOST, ACTIONS_IN_ALL // max(1, proof.program.num_actions)))
    spread = profile.known_spread
    seconds = durations(proof.program, proof.costs, proof.jobs.replica)
    samples = [
        run(proof.program, dependencies, proof.costs, perturbed).seconds
        for perturbed, dependencies in _perturbed(proof, profile, seconds, seed, num_samples)
    ]
    nominal = run(proof.program, proof.dependencies, proof.costs, seconds)
    return Prediction(nominal.seconds, np.array(samples), spread, seed, complexity_of(proof.costs.plan))


def _perturbed(
    proof: Proof, profile: Profile, seconds: Floats, seed: int, num_samples: int
) -> Iterator[tuple[Floats, Dependencies]]:
    """For each sample the seconds of all actions, and the dependencies with those of the transfers."""
    program, costs, dependencies, spread = proof.program, proof.costs, proof.dependencies, profile.known_spread
    stages = costs.plan.stages
    device = cause_factors(
        seed, [np.full(costs.num_devices, DEVICE), np.arange(costs.num_devices)], spread.device, num_samples
    )
    directions = np.tile(np.arange(_DIRECTIONS), len(stages))
    starts, stops = (np.repeat([getattr(stage, end) for stage in stages], _DIRECTIONS) for end in ("start", "stop"))
    stage = cause_factors(seed, [np.full(len(starts), STAGE), starts, stops, directions], spread.stage, num_samples)
    busy = np.flatnonzero(seconds > 0)
    kind, stage_of = program.kind[busy], program.stage[busy].astype(np.int64)
    direction = np.zeros(int(max(Kind)) + 1, dtype=np.int64)
    for name, number in _DIRECTION.items():
        direction[name] = number
    stage_error, device_error = stage_of * _DIRECTIONS + direction[kind], program.device_of[busy]
    noise = _noise_table(profile, proof)[kind, stage_of]
    link_of, links = _links(proof)
    link = cause_factors(seed, links, spread.link, num_samples)
    begin = dependencies.interfaces.begin
    owner = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    for sample in range(num_samples):
        drawn = seconds.copy()
        drawn[busy] *= device[sample][device_error] * stage[sample][stage_error] * noise_factors(seed, sample, noise)
        slower = link[sample][link_of]
        yield (
            drawn,
            dependencies._replace(
                occupancy_s=dependencies.occupancy_s * slower, interface_s=dependencies.interface_s * slower[owner]
            ),
        )


def _links(proof: Proof) -> tuple[Ints, list[Ints]]:
    """For each transfer the number of its link or ring, and the names of these."""
    program, dependencies = proof.program, proof.dependencies
    num, count = proof.num_messages, dependencies.num_transfers
    send = dependencies.send[:num]
    what = np.full(count, RING, dtype=np.int64)
    what[:num] = LINK
    source, target = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    source[:num], target[:num] = program.device_of[send], program.peer[send]
    source[num:] = np.arange(count - num)
    names, link_of = np.unique(np.stack([what, source, target]), axis=1, return_inverse=True)
    return link_of.reshape(-1), list(names)


def _noise_table(profile: Profile, proof: Proof) -> Floats:
    """Relative standard deviation of a single action, [kind, stage]. The noise of layers is independent."""
    spread, stages = profile.known_spread, proof.costs.plan.stages
    table = np.full((int(max(Kind)) + 1, len(stages)), spread.action)
    bounds = np.array([0, *(stage.stop for stage in stages)])
    for kind, passes in _PASSES.items():
        total, variance = np.zeros(len(stages)), np.zeros(len(stages))
        for name in passes:
            deviation = getattr(spread, name) or (spread.action,) * profile.num_units
            took = np.array([getattr(unit.times[0], f"{name}_s") for unit in profile.units])
            total += np.add.reduceat(took, bounds[:-1])
            variance += np.add.reduceat((took * np.array(deviation)) ** 2, bounds[:-1])
        if getattr(spread, passes[0]):
            table[kind] = np.sqrt(variance) / np.where(total > 0, total, 1.0)
    return table
