"""A run whose iterations are simulated on a cluster with noise, and whose devices and links change their speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.adaptation import Adapter, Outcome, Speed, Speeds, Subject, evaluate_on, make_replanner, with_speeds
from penstock.cluster import Cluster
from penstock.plan import Plan
from penstock.profile import Profile
from penstock.simulate import Evaluation, evaluate
from penstock.timeline import Timeline

WORK = 20
"""Plans that a search evaluates."""

Slowness = Mapping[str | tuple[str, str], float]
"""Slowness by device or directed link."""


def slowed(cluster: Cluster, slowness: Slowness) -> Cluster:
    """The cluster with slower devices and links."""
    devices = {name: Speed(value, 0.0) for name, value in slowness.items() if isinstance(name, str)}
    links = {link: Speed(value, 0.0) for link, value in slowness.items() if not isinstance(link, str)}
    return with_speeds(cluster, Speeds(devices, links), only_different=False)


class SimulatedRun:
    """A run that changes its plan when an adapter decides so.

    Args:
        profile: The profile.
        cluster: The declared cluster.
        plan: The plan at the start.
        num_steps: Steps of the run.
        noise: Standard deviation of the speed of every device and link from step to step, relative.
        seed: Seed of the noise.
        restart_s: Seconds of a change beside moving state.
    """

    def __init__(
        self,
        profile: Profile,
        cluster: Cluster,
        plan: Plan,
        num_steps: int,
        *,
        noise: float = 0.0,
        seed: int = 0,
        restart_s: float = 0.0,
    ) -> None:
        self.profile, self.cluster = profile, cluster
        self.num_steps = num_steps
        self._noise = noise
        self._random = np.random.default_rng(seed)
        subject = Subject(profile, cluster, make_replanner(profile, plan, work=WORK), num_steps, restart_s)
        self.adapter = Adapter(subject, evaluate(plan, profile, cluster), in_background=False)
        self.iterations_s: list[float] = []
        self.switches: list[int] = []

    def measure(self, slowness: Slowness) -> Timeline:
        """One iteration of the running plan."""
        names = [device.name for device in self.cluster.devices]
        pairs = [(one, other) for one in names for other in names if one != other]
        items: list[str | tuple[str, str]] = [*names, *pairs]
        noise = np.exp(self._noise * self._random.standard_normal(len(items)))
        noisy = {item: slowness.get(item, 1.0) * float(factor) for item, factor in zip(items, noise, strict=True)}
        running = evaluate_on(self.adapter.running, self.profile, slowed(self.cluster, noisy))
        return replace(running.timeline, origin="measured")

    def run(self, slowness_at: Sequence[tuple[int, Slowness]]) -> Iterator[Outcome]:
        """Run all steps; the slowness of each entry holds from its step on."""
        for step in range(self.num_steps):
            slowness = next((value for begin, value in reversed(slowness_at) if begin <= step), {})
            timeline = self.measure(slowness)
            self.iterations_s.append(timeline.iteration_s)
            self.adapter.observe(step, timeline)
            outcome = self.adapter.take_outcome()
            if outcome is not None:
                if outcome.decision.switch and outcome.candidate is not None:
                    self.adapter.start_plan(outcome.candidate, outcome.decision.new_s)
                    self.switches.append(step)
                yield outcome


def planned_for(profile: Profile, cluster: Cluster, plan: Plan, slowness: Slowness) -> Evaluation:
    """The plan that is made for a cluster with these speeds from the start."""
    return make_replanner(profile, plan, work=WORK)(slowed(cluster, slowness), ())
