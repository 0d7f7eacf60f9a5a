"""Part scale: the start-up of one rank among many, which loads its slice of the program, and its work per step."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.accelerators.start_up import WIDTH, make_model
from benchmarks.results import Result
from penstock import save_plan, save_profile
from penstock.cluster import Cluster, Device, Host, Wire
from penstock.cluster.toml import write_cluster
from penstock.dist.consensus.rank_tree import FAN_OUT
from penstock.model import find_blocks
from penstock.planners import plan
from penstock.program.slices import save_slices
from penstock.runtime.layout import placeholder_profile
from penstock.simulate import evaluate

SIZES, QUICK_SIZES = ((256, 2048), (1024, 2048)), ((64, 256), (256, 256))
"""Numbers of ranks and micro-batches."""


def check_scale(*, quick: bool) -> Iterator[Result]:
    """Start-up and work per step of the rank in the middle."""
    found = []
    for num_ranks, num_microbatches in QUICK_SIZES if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            num_actions = _write(Path(folder), num_ranks, num_microbatches)
            found.append(_measure(Path(folder), num_ranks))
    few, many = found
    num_few = (QUICK_SIZES if quick else SIZES)[0][0]
    what = f"one of {num_ranks:,} ranks, {num_microbatches:,} micro-batches, {num_actions:,} actions"
    seconds, megabytes = many["start_s"], many["start_mb"]
    yield Result(f"start-up, {what}", "< 5 s", f"{seconds:.2f} s of processor time", seconds < 5)
    yield Result("memory of it beyond torch", "< 300 MB", f"{megabytes:.0f} MB", megabytes < 300)
    growth = many["step_s"] / few["step_s"]
    yield Result("work per step, relative to a quarter of the ranks", "<= 1.5", f"{growth:.2f}", growth <= 1.5)
    growth, messages = many["exchange_s"] / few["exchange_s"], int(many["num_messages"])
    measured = f"{growth:.2f}, {messages} messages"
    what = "loss and batch shapes on the rank of the loss, likewise"
    # Two neighbours, and twice those below it in the tree.
    limit = 2 + 2 * FAN_OUT
    yield Result(what, f"<= 1.5, <= {limit}", measured, growth <= 1.5 and messages <= limit)
    connections, pairs = int(few["num_connections"]), int(few["num_pairs"])
    full = num_few * (num_few - 1) // 2
    measured = f"{connections} of {full:,}"
    yield Result(f"connections of gloo among {num_few} ranks", f"{pairs}", measured, connections == pairs)
    most = int(many["max_connections"])
    yield Result("connections of gloo of one rank, at most", "<= 20", f"{most}", most <= 20)
    rounds, communicators = int(many["num_rounds"]), int(many["num_communicators"])
    yield Result(f"contact rounds on a chain of {num_ranks:,}", "<= 4", f"{rounds}", rounds <= 4)
    yield Result("communicators per neighbour", "<= 2", f"{communicators}", communicators <= 2)


def _write(folder: Path, num_ranks: int, num_microbatches: int) -> int:
    """Write plan, profile, cluster and slices; return the number of actions."""
    blocks = find_blocks(make_model(num_ranks), None, torch.zeros(1, WIDTH), torch.device("cpu"))
    profile = placeholder_profile(blocks, 1)
    wire = Wire(bandwidth=25e9, latency_s=5e-6)
    devices = tuple(Device(name=f"d{number}", host="h", kind="device") for number in range(num_ranks))
    cluster = Cluster(name="row", hosts=(Host(name="h", inside=wire),), devices=devices, between=wire)
    made = plan(profile, cluster, num_microbatches, planner="uniform", schedule="1f1b")
    program = evaluate(made, profile, cluster).program
    save_profile(profile, folder / "profile.json")
    save_plan(made, folder / "plan.json")
    (folder / "cluster.toml").write_text(write_cluster(cluster))
    save_slices(program, folder / "slices")
    return program.num_actions


def _measure(folder: Path, num_ranks: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.accelerators.start_up", str(folder), str(num_ranks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
