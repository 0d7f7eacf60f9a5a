"""The process that plans for losses: `-m penstock.launch.elastic.planning_main FOLDER OPTIONS...`.

It makes the plans that `wanted.json` in FOLDER names, in that order, and looks there again after each. A plan is proved
and simulated, and appears with its slices when it is complete.
"""

import os
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

import msgspec

from penstock.bundle import PlanBundle
from penstock.dist import die_with_parent, started_by
from penstock.errors import PenstockError
from penstock.io import write_whole
from penstock.launch.elastic.copy_memory import check_copy_memory
from penstock.launch.elastic.plan_shelf import RESULT, WANTED, Planned, Wanted, loss_folder
from penstock.launch.train_options import parse_options

POLL_S = 0.1
LOWEST_PRIORITY = 19


def main(folder: Path, arguments: list[str]) -> None:
    """Plan until the process that started this one ends."""
    die_with_parent(started_by())
    os.nice(LOWEST_PRIORITY)
    options, _ = parse_options(arguments, ArgumentParser())
    _, bundle = options.open()
    while True:
        wanted = msgspec.json.decode((folder / WANTED).read_bytes(), type=Wanted)
        open_ones = [lost for lost in wanted.losses if not (loss_folder(folder, lost) / RESULT).exists()]
        if open_ones:
            plan_one(bundle, open_ones[0], loss_folder(folder, open_ones[0]))
        else:
            time.sleep(POLL_S)


def plan_one(bundle: PlanBundle, lost: tuple[str, ...], folder: Path) -> None:
    """Plan for one set of lost devices, and write the plan, its slices and the result."""
    from penstock.plan import save_plan
    from penstock.planners.studies import plan_without
    from penstock.program.slices import save_slices

    folder.mkdir(exist_ok=True)
    began_s = time.monotonic()
    try:
        found = plan_without(bundle.plan, bundle.profile, bundle.cluster, lost)
        check_copy_memory(found)
    except PenstockError as error:
        planned = Planned(error=error.what)
    else:
        plan = found.costs.plan
        save_plan(plan, folder / "plan.json")
        save_slices(found.program, folder / "slices")
        used = tuple(device.name for device in bundle.cluster.devices if device.name in plan.devices)
        planned = Planned("", found.timeline.iteration_s, used, time.monotonic() - began_s)
    write_whole(folder / RESULT, msgspec.json.encode(planned))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
