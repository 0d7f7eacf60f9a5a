"""The planners against each other, against the bound, and against exact solutions; targets in README.md.

    python benchmarks/planners/main.py [--instances FOLDER]           all of it: some hours
    python benchmarks/planners/main.py --quick                        a smaller run, under 50 seconds

Instances are read from ../shared/instances unless another folder is given. Prints one line a target: what it is, the
target, what was measured, and `ok` or `short`; exits 1 if any falls short.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.planners import PLANNERS
from penstock.planners.auto import Freedoms, auto
from penstock.planners.bounds import lower_bound
from penstock.planners.exact import exact
from penstock.planners.make import plan
from penstock.planners.problem import Problem
from penstock.planners.spp import spp
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.schedules import SCHEDULES
from penstock.simulate.evaluate import evaluate

sys.path.insert(0, str(Path(__file__).parents[1]))
from instances import all_profiles, regions

FOLDER = Path(__file__).parents[2].parent / "shared" / "instances"


class Result(NamedTuple):
    """One target: what was measured, what it had to be, and whether it was reached."""

    what: str
    target: str
    measured: str
    reached: bool


def lab() -> Cluster:
    """Two of each of the five kinds of opt350, 12 GB/s inside pairs and 1.25 GB/s between."""
    kinds = ("A100-40", "V100-16", "RTX-3090", "RTX-2080", "Titan-RTX")
    inside = Wire(bandwidth=12e9)
    return Cluster(
        name="lab",
        hosts=tuple(Host(name=kind, inside=inside) for kind in kinds),
        devices=tuple(Device(name=f"{kind}.{place}", host=kind, kind=kind) for kind in kinds for place in range(2)),
        between=Wire(bandwidth=1.25e9),
    )


def spread(folder: Path, num_devices: int = 16) -> Cluster:
    """Devices over the ten regions, one host a region."""
    wires = {pair: Wire(bandwidth=rate, latency_s=latency) for pair, (latency, rate) in regions(folder).items()}
    names = sorted({name for pair in wires for name in pair})
    homes = [names[place % len(names)] for place in range(num_devices)]
    devices = tuple(Device(name=f"{home}.{place}", host=home, kind="X") for place, home in enumerate(homes))
    links = tuple(
        Link(source=a.name, target=b.name, wire=wires.get((a.host, b.host)) or wires[b.host, a.host])
        for a in devices
        for b in devices
        if a.host != b.host
    )
    inside = Wire(bandwidth=12.5e9)
    hosts = tuple(Host(name=name, inside=inside) for name in names)
    return Cluster(name="regions", hosts=hosts, devices=devices, between=inside, links=links)


def irregular(num_devices: int = 12) -> Cluster:
    """Every link its own bandwidth and latency, every device its own speed."""
    random = np.random.default_rng(12)
    devices = tuple(
        Device(name=f"d{place}", host="h", kind="X", speed=float(random.uniform(0.5, 1.5)))
        for place in range(num_devices)
    )
    links = tuple(
        Link(
            source=a.name,
            target=b.name,
            wire=Wire(bandwidth=float(10 ** random.uniform(8.5, 11)), latency_s=float(random.uniform(0, 1e-4))),
        )
        for a in devices
        for b in devices
        if a.name != b.name
    )
    inside = Wire(bandwidth=1e9)
    return Cluster(
        name="irregular", hosts=(Host(name="h", inside=inside),), devices=devices, between=inside, links=links
    )


def clusters(folder: Path) -> dict[str, Cluster]:
    return {
        "4 fast": load_cluster("4 x X @ 100 GB/s"),
        "8 fast": load_cluster("8 x X @ 100 GB/s"),
        "2 x 4": load_cluster("2 x 4 x X @ 100 GB/s / 1.25 GB/s"),
        "4 x 4": load_cluster("4 x 4 x X @ 100 GB/s / 1.25 GB/s"),
        "lab": lab(),
        "regions": spread(folder),
        "irregular": irregular(),
    }


class Case(NamedTuple):
    """One problem: what the best other planner and schedule take, what auto takes, and the bound."""

    name: str
    replication: bool
    others: dict[tuple[str, str], float]
    auto_s: float
    bound_s: float
    one_host: bool


def run_case(name: str, profile: Profile, cluster: Cluster, num: int, replication: bool) -> Case:
    others = {}
    for planner in PLANNERS:
        if planner == "auto" or (not replication and planner in ("data_parallel", "dapple", "spp", "pipedream")):
            continue
        for schedule in SCHEDULES:
            made = plan(profile, cluster, num, planner=planner, schedule=schedule)
            others[planner, schedule] = evaluate(made, profile, cluster, within_memory=False).timeline.iteration_s
    found = auto(Problem(profile, cluster, num), freedoms=Freedoms(replication=replication))
    return Case(
        name,
        replication,
        others,
        evaluate(found, profile, cluster, within_memory=False).timeline.iteration_s,
        lower_bound(profile, cluster, num, replication=replication).seconds,
        len({device.host for device in cluster.devices}) == 1 and not cluster.links,
    )


def against_each_other(cases: list[Case]) -> Iterator[Result]:
    worse = [case.name for case in cases if case.auto_s > min(case.others.values()) * (1 + 1e-12)]
    yield Result(
        f"auto at least as fast as every planner x schedule, {len(cases)} cases",
        "0 exceptions",
        f"{len(worse)} exceptions",
        not worse,
    )
    for planner in PLANNERS:
        ratios = [
            min(seconds for (name, _), seconds in case.others.items() if name == planner) / case.auto_s
            for case in cases
            if any(name == planner for name, _ in case.others)
        ]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(
                f"  {planner:14} with its best schedule takes {mean:.2f} x as long as auto (geometric mean), "
                f"at most {max(ratios):.2f} x"
            )
    for one_host, limit in ((True, 0.05), (False, 0.15)):
        gaps = [case.auto_s / case.bound_s - 1 for case in cases if case.one_host or not one_host]
        if gaps:
            median = statistics.median(gaps)
            where = "one-host clusters" if one_host else "all clusters"
            yield Result(
                f"median gap of auto to the bound, {where}",
                f"<= {limit:.0%}",
                f"{median:.1%} (max {max(gaps):.0%})",
                median <= limit,
            )


def small_case(seed: int) -> Problem:
    """Three devices, six units, three micro-batches, unequal everything."""
    random = np.random.default_rng(seed)
    kinds = [f"k{place}" for place in range(3)]
    units = tuple(
        Unit(
            name=f"u{number}",
            parameter_bytes=int(random.integers(0, 50)),
            sizes=(Sizes(rows=1, cut_bytes=int(random.integers(1, 100)), saved_bytes=int(random.integers(1, 300))),),
            times=tuple(
                Times(
                    kind=kind,
                    rows=1,
                    forward_s=float(random.uniform(1, 10)),
                    input_grad_s=float(random.uniform(1, 10)),
                    weight_grad_s=float(random.uniform(1, 10)),
                )
                for kind in kinds
            ),
        )
        for number in range(6)
    )
    devices = tuple(Device(name=f"d{place}", host="h", kind=kind) for place, kind in enumerate(kinds))
    links = tuple(
        Link(
            source=a.name,
            target=b.name,
            wire=Wire(bandwidth=float(random.uniform(10, 300)), latency_s=float(random.uniform(0, 1))),
        )
        for a in devices
        for b in devices
        if a.name != b.name
    )
    wire = Wire(bandwidth=100.0)
    cluster = Cluster(name="small", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire, links=links)
    return Problem(Profile(name="small", rows=1, units=units), cluster, 3)


def against_exact(num_cases: int) -> Iterator[Result]:
    ratios, above = [], 0
    for seed in range(num_cases):
        problem = small_case(seed)
        best = exact(problem)
        found = auto(problem, freedoms=Freedoms(replication=False))
        seconds = evaluate(found, problem.profile, problem.cluster).timeline.iteration_s
        ratios.append(seconds / best.makespan_s)
        bound = lower_bound(problem.profile, problem.cluster, problem.num_microbatches, replication=False).seconds
        above += bound > best.makespan_s * (1 + 1e-9)
    near = sum(ratio <= 1.01 for ratio in ratios) / len(ratios)
    yield Result(f"auto within 1 % of exact, {num_cases} small cases", "95 %", f"{near:.0%}", near >= 0.95)
    yield Result("auto within 5 % of exact", "all", f"worst {max(ratios) - 1:.1%} above", max(ratios) <= 1.05)
    yield Result("bounds above exact", "none", str(above), above == 0)


def speed(profiles: dict[str, Profile], names: list[str]) -> Iterator[Result]:
    cluster = load_cluster("4 x 4 x X @ 100 GB/s / 1.25 GB/s")
    for title, method, limit in (("spp", spp, 0.5), ("auto", auto, 5.0)):
        slowest = 0.0
        for name in names:
            problem = Problem(profiles[name], cluster, 16)
            method(problem)
            began = time.perf_counter()
            method(problem)
            slowest = max(slowest, time.perf_counter() - began)
        yield Result(
            f"{title} on 16 devices, slowest of {len(names)}", f"< {limit} s", f"{slowest:.2f} s", slowest < limit
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    parser.add_argument("--instances", type=Path, default=FOLDER, help="the folder of published profiles")
    options = parser.parse_args()
    if not options.instances.is_dir():
        print(f"no published profiles in {options.instances}: name their folder with --instances")
        return 2
    profiles = all_profiles(options.instances)
    places = clusters(options.instances)
    results: list[Result] = []
    if options.quick:
        names, microbatches = ["pipedream/vgg16"], [16]
        places = {name: places[name] for name in ("8 fast", "2 x 4")}
        timed, num_exact = ["pipedream/gnmt"], 2
    else:
        names, microbatches = list(profiles), [4, 16, 64]
        timed, num_exact = ["pipedream/vgg16", "pipedream/resnet50", "pipedream/gnmt", "pipedream/densenet121"], 100
    cases = []
    for name in names:
        for place, cluster in places.items():
            for num in microbatches:
                for replication in (True, False):
                    title = f"{name} on {place}, M = {num}{'' if replication else ', straight'}"
                    case = run_case(title, profiles[name], cluster, num, replication)
                    cases.append(case)
                    best, seconds = min(case.others.items(), key=lambda entry: entry[1])
                    print(
                        f"  {title:52} auto {case.auto_s:9.4f} s, bound {case.bound_s:9.4f} s, "
                        f"next {seconds:9.4f} s ({best[0]} + {best[1]})",
                        flush=True,
                    )
    for part in (against_each_other(cases), speed(profiles, timed), against_exact(num_exact)):
        for result in part:
            results.append(result)
            verdict = "ok" if result.reached else "short"
            print(f"{result.what:66} target {result.target:13} measured {result.measured:20} {verdict}", flush=True)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
