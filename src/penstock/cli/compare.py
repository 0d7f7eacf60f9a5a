"""penstock compare: all planners and schedules on one problem."""

import time
from typing import Any

import click

from penstock.cli.screen import Screen, counted, screen_options
from penstock.cli.sources import Precision, ProfileSource, profile_options
from penstock.cluster.types import Cluster
from penstock.errors import MemoryLimitError
from penstock.profile.types import Profile
from penstock.quantities import show_bytes, show_percent, show_seconds


@click.command("compare")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option("--cluster", "cluster_source", required=True, help='A TOML file, or such as "8 x A100-40 @ 100 GB/s".')
@click.option("-m", "--microbatches", type=click.IntRange(1, 2**24), default=16, show_default=True)
@profile_options
@screen_options
def command(
    screen: Screen,
    source: str,
    cluster_source: str,
    microbatches: int,
    kinds: tuple[str, ...],
    rows: int | None,
    sequence: int | None,
    precision: Precision | None,
) -> None:
    """All planners and schedules on one problem, each in the shape that the schedule is made for."""
    from penstock.cluster.load import load_cluster
    from penstock.planners import PLANNERS
    from penstock.planners.bounds import lower_bound
    from penstock.schedules import SCHEDULES

    cluster = load_cluster(cluster_source)
    wanted = ProfileSource(source, kinds, rows, sequence, precision).for_cluster(cluster)
    profile = wanted.load()
    bound = lower_bound(profile, cluster, microbatches)
    with screen.working("planning for one device"):
        alone = _one_device_s(profile, cluster, microbatches)
    found = []
    for planner in PLANNERS:
        for schedule in SCHEDULES if planner != "auto" else ("auto",):
            with screen.working(f"{planner} + {schedule}"):
                found.append(_entry(profile, cluster, microbatches, planner, schedule, alone))
    found.sort(key=lambda entry: (not entry["fits"], entry["iteration_s"]))
    figures = {"one_device_s": alone, "bound_s": bound.seconds}
    screen.data({"profile": profile.name, "cluster": cluster.name, **figures, "plans": found})
    rows_shown = [
        (
            entry["planner"],
            entry["schedule"],
            show_seconds(entry["iteration_s"]),
            f"{entry['speed_up']:.2f} x" if entry["speed_up"] is not None else "",
            show_percent(entry["iteration_s"] / bound.seconds - 1) if bound.seconds > 0 else "",
            show_percent(entry["bubble_fraction"]),
            show_bytes(entry["peak_bytes"]),
            show_bytes(entry["traffic_bytes"]),
            show_seconds(entry["planning_s"]),
            "" if entry["fits"] else "does not fit",
            "" if entry["whole_rows"] else "splits rows",
        )
        for entry in found
    ]
    screen.table(
        f"{profile.name} on {cluster.name}, "
        f"{counted(microbatches, 'micro-batch', 'es')} of {counted(profile.rows, 'row')}",
        (
            "planner",
            "schedule",
            "iteration",
            "speed-up",
            "over bound",
            "bubble",
            "peak memory",
            "traffic",
            "planned in",
            "",
            "",
        ),
        rows_shown,
        left=2,
    )
    screen.show(
        f"speed-up: over one device without memory limit, {show_seconds(alone)}; "
        f"over bound: {show_seconds(bound.seconds)}, which no plan can beat ({bound.reason})"
    )
    screen.assumptions(*profile.assumptions, *cluster.assumptions)
    best = found[0]
    screen.next(
        f'penstock plan --profile {wanted.text} --cluster "{cluster_source}" -m {microbatches} '
        f"--planner {best['planner']} --schedule {best['schedule']} -o plan.json"
    )


def _one_device_s(profile: Profile, cluster: Cluster, microbatches: int) -> float:
    """The iteration on the device that does it fastest, whatever memory that would take."""
    from penstock.planners.problem import Problem

    clock = Problem(profile, cluster, microbatches).clock
    return min(
        microbatches * float(clock.work(place)[-1]) + float(clock.prefix(place, 1.0, "step_s")[-1])
        for place in range(cluster.num_devices)
    )


def _entry(
    profile: Profile, cluster: Cluster, microbatches: int, planner: str, schedule: str, alone: float
) -> dict[str, Any]:
    from penstock.planners.make import plan
    from penstock.program.proof import check_memory
    from penstock.simulate.evaluate import evaluate
    from penstock.timeline.summary import bubble_fraction, device_uses

    began = time.perf_counter()
    made = plan(profile, cluster, microbatches, planner=planner, schedule=schedule)
    planning_s = time.perf_counter() - began
    result = evaluate(made, profile, cluster, within_memory=False)
    short = ""
    try:
        check_memory(result.proof)
    except MemoryLimitError as error:
        short = error.what
    seconds = result.timeline.iteration_s
    uses = device_uses(result.timeline)
    return {
        "planner": planner,
        "schedule": schedule,
        "iteration_s": seconds,
        "speed_up": alone / seconds if seconds > 0 else None,
        "bubble_fraction": bubble_fraction(result.timeline),
        "peak_bytes": max(use.peak_bytes for use in uses),
        "traffic_bytes": sum(use.sent_bytes for use in uses),
        "planning_s": planning_s,
        "fits": not short,
        "whole_rows": result.costs.has_whole_rows,
        "short_of_memory": short,
    }
