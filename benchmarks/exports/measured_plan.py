"""A workload of benchmarks/runtime, measured on two ranks, planned for an engine and exported, on the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import penstock
from benchmarks.exports.penstock_command import penstock as run_penstock
from benchmarks.exports.penstock_command import penstock_json
from benchmarks.runtime.machine_profile import measure_machine
from benchmarks.runtime.ranks import Ranks
from benchmarks.runtime.workloads import Workload
from penstock.cluster.toml import write_cluster

NUM_MICROBATCHES = 8
Log = Callable[[str], None]


class MeasuredPlan(NamedTuple):
    """A plan for an engine, and its export."""

    profile: penstock.Profile
    predicted_s: float
    stages: str
    """The layers and the rank of every stage."""
    folder: str
    """The folder of the export."""


def plan_measured(ranks: Ranks, workload: Workload, engine: str, folder: Path, *, quick: bool) -> MeasuredPlan:
    """Profile the workload on the ranks, plan it for the engine and export the plan."""
    profile, cluster = measure_machine(ranks, workload, 1.0 if quick else 25.0)
    paths = [str(folder / name) for name in ("profile.json", "cluster.toml", "plan.json", "run")]
    penstock.save_profile(profile, paths[0])
    Path(paths[1]).write_text(write_cluster(cluster))
    options = ("--profile", paths[0], "--cluster", paths[1], "-m", str(NUM_MICROBATCHES), "-o", paths[2])
    found = penstock_json("plan", *options, "--engine", engine, "--no-replication")
    run_penstock("export", paths[2], "--to", engine, "-o", paths[3])
    plan = json.loads(Path(paths[2]).read_text())
    stages = [f"{stage['start']}-{stage['stop'] - 1} {stage['forward'][0]['device']}" for stage in plan["stages"]]
    return MeasuredPlan(profile, float(found["iteration_s"]), ", ".join(stages), paths[3])
