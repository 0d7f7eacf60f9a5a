"""Records what planners, schedules and the simulator give on fixed problems, as exact numbers.

Run as a script, `record.py OUTPUT INSTANCES [--quick]`, with the source tree to record on
PYTHONPATH. It uses only what the trees before and after the re-layout have in common, so that the records of both
can be compared to the bit.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import penstock

CLUSTERS = {
    "one host": "4 x A100-40 @ 100 GB/s",
    "two hosts": "2 x 4 x A100-40 @ 100 GB/s / 1.25 GB/s",
    "slow": "3 x A100-40 @ 0.5 GB/s",
}
MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt2-xl", {"sequence": 1024}),
    ("gpt2", {"sequence": 1024}),
    ("bert-large", {}),
    ("resnet50", {}),
    ("vgg16", {}),
    ("pipedream/vgg16.txt", {}),
    ("pipedream/alexnet.txt", {}),
    ("pipedream/gnmt.txt", {}),
    ("hpgo/vgg19.txt", {}),
    ("hpgo/xlnet.txt", {}),
    ("piper/bert32.json", {}),
)
MICROBATCHES = (4, 13)
FORMER_NAMES = {"auto_fused": "auto_whole"}
"""Schedules that were renamed; records have the former names."""


def main(output: str, instances: str, *, quick: bool = False) -> None:
    """Write one record per problem, planner and schedule."""
    records: dict[str, Any] = {}
    for name, options in MODELS[-1:] if quick else MODELS:
        path = Path(instances) / name
        if "/" in name:
            profile = penstock.load_profile(str(path))
        else:
            profile = penstock.load_profile(name, kinds=["A100-40"], **options)
        for cluster_name, spec in CLUSTERS.items():
            cluster = penstock.load_cluster(spec)
            for num in MICROBATCHES[-1:] if quick else MICROBATCHES:
                problem = f"{name} | {cluster_name} | {num}"
                for key, value in _problem(profile, cluster, num):
                    records[f"{problem} | {key}"] = value
    Path(output).write_text(json.dumps(records, indent=0, sort_keys=True))


def _problem(profile: Any, cluster: Any, num: int) -> Any:
    for planner in penstock.PLANNERS:
        schedules = (None,) if planner == "auto" else tuple(penstock.SCHEDULES)
        for schedule in schedules:
            try:
                plan = _plan(profile, cluster, num, planner=planner, schedule=schedule)
                yield f"{planner} | {_name(schedule)}", _figures(plan, profile, cluster)
            except penstock.PenstockError as error:
                yield f"{planner} | {_name(schedule)}", type(error).__name__


def _name(schedule: str | None) -> str | None:
    return FORMER_NAMES.get(schedule, schedule) if schedule else None


def _plan(profile: Any, cluster: Any, num: int, **options: Any) -> Any:
    found = penstock.plan(profile, cluster, num, **options)
    return getattr(found, "plan", found)  # the re-laid tree returns the plan with its program


def _figures(plan: Any, profile: Any, cluster: Any) -> Any:
    result = penstock.evaluate(plan, profile, cluster, within_memory=False)
    program = result.program
    stages = plan.stages if hasattr(plan, "stages") else plan.segments
    actions = hashlib.sha256()
    for device in program.devices:
        actions.update(" ".join(map(str, program.actions(device))).encode())
    times = hashlib.sha256(result.timeline.start_s.tobytes() + result.timeline.end_s.tobytes())
    return {
        "schedule": _name(plan.schedule),
        "stages": [
            [
                stage.start,
                stage.stop,
                [[replica.device, replica.share.hex()] for replica in stage.forward],
                [[replica.device, replica.share.hex()] for replica in stage.backward],
                stage.recompute,
            ]
            for stage in stages
        ],
        "iteration_s": float(result.timeline.iteration_s).hex(),
        "peak_bytes": [float(value).hex() for value in result.proof.peak_bytes],
        "num_messages": int(result.proof.num_messages),
        "actions": actions.hexdigest(),
        "times": times.hexdigest(),
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], quick="--quick" in sys.argv)
