"""Adaptive runs, emulated: a device or a link slows down, and the run changes to a plan for these speeds.

The throughput after the change is compared with that of the plan that is made for the slow cluster from the start,
emulated on it in the same way. A healthy run with noise must keep its plan.
"""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from benchmarks.results import Result
from penstock.adaptation import Speed, Speeds, make_replanner, with_speeds
from penstock.cluster import Cluster, load_cluster
from penstock.emulation import Emulation, Happening, Scenario, choose_slow_down
from penstock.emulation.faults import parse_link_fault
from penstock.launch import AdaptOptions, ScenarioRun, play_scenario
from penstock.planners.api import solve
from penstock.profile import Profile, load_profile
from penstock.simulate import evaluate

NOISE = 0.05
BEGIN = 10
"""The slowdown begins after so many iterations."""
WITHIN = 20
AFTER = 8
"""Iterations that are measured after the change."""
NUM_HEALTHY = 200
RUN_STEPS = 10_000
"""Steps of the training run whose begin is emulated."""


class Case(NamedTuple):
    """A cluster, and what slows down: a device by 2, or a link to a tenth."""

    cluster: str
    device: str = ""
    link: str = ""

    @property
    def name(self) -> str:
        return f"{self.device} takes 2 x as long" if self.device else f"{self.link} at a tenth"


CLUSTERS = {8: "2 x 4 x T4 @ 10 GB/s / 2.5 GB/s", 16: "4 x 4 x T4 @ 10 GB/s / 2.5 GB/s"}
CASES = [
    Case(CLUSTERS[8], device="h0.d1"),
    Case(CLUSTERS[8], link="h0-h1"),
    Case(CLUSTERS[16], device="h1.d2"),
    Case(CLUSTERS[16], link="h0-h1"),
]
QUICK = [Case("2 x 2 x T4 @ 10 GB/s / 2.5 GB/s", device="h0.d1")]


def check_adaptive(*, quick: bool) -> Iterator[Result]:
    """Emulate slow devices and links, and healthy runs."""
    for case in QUICK if quick else CASES:
        yield from _check_case(case)
    for cluster in [QUICK[0].cluster] if quick else CLUSTERS.values():
        yield _check_healthy(cluster, 30 if quick else NUM_HEALTHY)


def _check_case(case: Case) -> Iterator[Result]:
    emulation = _emulation(case.cluster)
    cluster, num = emulation.cluster, emulation.cluster.num_devices
    begin_s = BEGIN * emulation.evaluation.timeline.iteration_s
    adaptive = _play(emulation, BEGIN + WITHIN + AFTER, _event(case, cluster, begin_s))
    slow = _slowed(case, cluster)
    planned = make_replanner(emulation.profile, emulation.plan)(slow, ())
    reference = replace(emulation, plan=planned.costs.plan, believed=slow)
    ideal = _play(reference, 1 + AFTER, _event(case, cluster, 0.0), mode="off")
    ideal_s = statistics.median(item.iteration_s for item in ideal.steps[1:])
    begin = next(item.step for item in adaptive.steps if item.at_s > begin_s)
    last = max((change.step for change in adaptive.changes), default=begin)
    after = [item.iteration_s for item in adaptive.steps if item.step > max(last, begin + WITHIN)]
    name = f"{num} devices, {case.name}"
    num_iterations = last - begin
    yield Result(
        f"{name}: iterations until the last change of plans",
        f"{WITHIN}",
        f"{num_iterations} ({len(adaptive.changes)} changes)",
        num_iterations <= WITHIN,
    )
    ratio = statistics.median(after) / ideal_s
    measured = f"{ratio:.3f} ({statistics.median(after):.3f} s, {ideal_s:.3f} s)"
    yield Result(f"{name}: iteration time over that of the plan from the start", "1.05", measured, ratio <= 1.05)


def _check_healthy(cluster: str, num_steps: int) -> Result:
    emulation = _emulation(cluster)
    run = _play(emulation, num_steps, ())
    what = f"{emulation.cluster.num_devices} devices, {len(run.steps)} healthy iterations with noise: changes of plans"
    return Result(what, "0", str(len(run.changes)), not run.changes and len(run.steps) == num_steps)


def _emulation(cluster_text: str) -> Emulation:
    cluster, profile = load_cluster(cluster_text), _profile()
    plan = solve(profile, cluster, 8).plan
    emulation = Emulation(plan=plan, profile=profile, cluster=cluster, timeout_s=600.0)
    return replace(emulation, slow_down=choose_slow_down(evaluate(plan, profile, cluster)))


def _profile() -> Profile:
    return load_profile("gpt2", kinds=["T4"], micro_batch_size=8)


def _event(case: Case, cluster: Cluster, at_s: float) -> tuple[Happening, ...]:
    if case.device:
        return (Happening(at_s=at_s, what="slow", device=case.device, factor=2.0),)
    names = [device.name for device in cluster.devices]
    fault = replace(parse_link_fault(f"{case.link}=0.1x", cluster, names), at_s=at_s)
    return (Happening(at_s=at_s, what="link", factor=0.1, link=fault),)


def _slowed(case: Case, cluster: Cluster) -> Cluster:
    if case.device:
        return with_speeds(cluster, Speeds({case.device: Speed(2.0, 0.0)}))
    (event,) = _event(case, cluster, 0.0)
    assert event.link is not None, "it is a link"
    return with_speeds(cluster, Speeds({}, {link: Speed(10.0, 0.0) for link in event.link.links}))


def _play(emulation: Emulation, num_steps: int, events: tuple[Happening, ...], mode: str = "on") -> ScenarioRun:
    scenario = Scenario(num_steps=num_steps, run_steps=RUN_STEPS, noise=NOISE, events=events)
    log: list[str] = []
    run = play_scenario(replace(emulation, scenario=scenario, num_steps=num_steps), AdaptOptions(mode), log.append)
    for line in log:
        print(f"    {line}", flush=True)
    if run.failure is not None:
        raise run.failure
    if run.was_stopped:
        raise KeyboardInterrupt
    return run
