"""The README of an exported folder, and the files that start its ranks."""

import csv
import io
from collections.abc import Sequence

from penstock.export.launched_ranks import LaunchedRank, fits_torchrun, launched_ranks
from penstock.export.subject import Subject
from penstock.export.types import Draft, Engine
from penstock.units import show_bytes, show_count, show_percent, show_seconds


def make_readme(subject: Subject, engine: Engine, draft: Draft, approximations: Sequence[str]) -> str:
    """The README: what the export is, how to run it, the prediction, and what is approximated."""
    plan, prediction = subject.plan, subject.prediction
    ranks = launched_ranks(subject.grid, subject.cluster)
    counts = (
        f"{show_count(plan.num_stages, 'stage')} on {show_count(len(ranks), 'device')}, "
        f"{show_count(plan.num_microbatches, 'micro-batch', 'es')} of {show_count(plan.micro_batch_size, 'row')}"
    )
    stages = [
        f"| {number} | {subject.grid.rank_of_stage[number]} | "
        f"{', '.join(replica.device for replica in stage.forward)} | {_layers(subject, number)} |"
        for number, stage in enumerate(plan.stages)
    ]
    memory = [
        f"| {item.rank} | {item.host} | {item.local_device} | {item.device} "
        f"| {show_bytes(prediction.peak_bytes[item.device])} |"
        for item in ranks
    ]
    rate = f" ({prediction.rows / prediction.iteration_s:,.1f} rows/s)" if prediction.iteration_s > 0 else ""
    seconds = show_seconds(prediction.iteration_s)
    lines = [
        f"# {subject.profile.name} on {subject.cluster.name}, for {engine.title}",
        "",
        f"Exported by Penstock from a plan of `{plan.planner}`: {counts}.",
        "",
        "## Run",
        "",
        draft.run.strip(),
        *([] if engine.starts_itself else ["", *_start(ranks)]),
        "",
        "## Prediction",
        "",
        f"Iteration time {seconds}{rate}, bubble {show_percent(prediction.bubble_fraction)}.",
        "",
        "| stage | pipeline rank | devices | layers |",
        "|---|---|---|---|",
        *stages,
        "",
        "| rank | host | device of the host | name in the cluster | predicted peak memory |",
        "|---|---|---|---|---|",
        *memory,
        "",
        "## What is only approximated",
        "",
        *[f"- {text}" for text in approximations],
        "",
    ]
    return "\n".join(lines)


def _layers(subject: Subject, number: int) -> str:
    stage = subject.plan.stages[number]
    first, last = subject.layer_names[stage.start], subject.layer_names[stage.stop - 1]
    return first if first == last else f"{first} .. {last}"


def _start(ranks: Sequence[LaunchedRank]) -> list[str]:
    hosts = list(dict.fromkeys(item.host for item in ranks))
    lines = [
        "`ranks.csv` states which rank runs on which device. Start the ranks of each host with",
        "",
        *[f"    MASTER_ADDR={hosts[0]} MASTER_PORT=29500 sh launch.sh {host} python train.py" for host in hosts],
        "",
        "`launch.sh` sets RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE. Your program replaces `python train.py`.",
    ]
    if fits_torchrun(tuple(ranks)):
        per_host = len(ranks) // len(hosts)
        nodes = f" --nnodes {len(hosts)} --node-rank N --master-addr {hosts[0]}" if len(hosts) > 1 else ""
        order = f", with the hosts in the order {', '.join(hosts)}" if len(hosts) > 1 else ""
        lines += [f"`torchrun --nproc-per-node {per_host}{nodes} train.py` starts the same ranks{order}."]
    return lines


def ranks_csv(subject: Subject) -> str:
    """The table of processes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "host", "local_device", "device", "pipeline_rank", "replica"])
    for item in launched_ranks(subject.grid, subject.cluster):
        writer.writerow([item.rank, item.host, item.local_device, item.device, item.pipeline_rank, item.replica])
    return text.getvalue()
