"""Ranks that fail: the first cause is named, and everything ends."""

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result
from benchmarks.trust.faulty_training import KINDS, PHASES, Fault, Report, try_fault, write_plan

NUM_FAULTS = 200
QUICK_S = 38.0
"""A quick run starts no further fault after this."""
QUICK_STRIDE = 17
"""It takes every 17th fault, so that kinds, phases and ranks vary."""


def all_faults() -> list[Fault]:
    """Every kind in every phase, on 2 to 4 ranks, with the failing rank in turn."""
    cases = itertools.cycle(itertools.product(KINDS, PHASES))
    sizes = itertools.cycle([2, 3, 4])
    faults: list[Fault] = []
    for (kind, phase), num_ranks in itertools.islice(zip(cases, sizes, strict=False), NUM_FAULTS):
        number = len(faults)
        # 54 cases and 3 sizes have a common period; a shift each round varies the size too.
        size = 2 + (num_ranks - 2 + number // (len(KINDS) * len(PHASES))) % 3
        faults.append(Fault(kind, phase, size, (number // 3) % size))
    return faults


def run_faults(*, quick: bool) -> Iterator[Report]:
    """Try the faults, one after the other."""
    began_s = time.monotonic()
    faults = all_faults()
    if quick:
        faults = [faults[number * QUICK_STRIDE % NUM_FAULTS] for number in range(NUM_FAULTS)]
    with tempfile.TemporaryDirectory() as name:
        plans: dict[int, Path] = {}
        for number, fault in enumerate(faults):
            if quick and number and time.monotonic() - began_s > QUICK_S:
                return
            folder = Path(name, str(number))
            folder.mkdir()
            if fault.num_ranks not in plans:
                plan_folder = Path(name, f"plan{fault.num_ranks}")
                plan_folder.mkdir()
                plans[fault.num_ranks] = write_plan(plan_folder, fault.num_ranks)
            yield try_fault(fault, folder, plans[fault.num_ranks])


def check_faults(*, quick: bool) -> Iterator[Result]:
    """Try faults; print what was wrong, and yield the targets."""
    reports = []
    for report in run_faults(quick=quick):
        reports.append(report)
        if report.complaints:
            print(f"{report.fault.name}: {'; '.join(report.complaints)}\n{report.text}", file=sys.stderr)
    yield from judge(reports)


def judge(reports: list[Report]) -> list[Result]:
    """The targets for faults."""
    count = len(reports)

    def well(*words: str) -> int:
        return sum(not any(word in item for word in words for item in report.complaints) for report in reports)

    named, with_table = well("named", "blamed", "cause", "exit code"), well("table", "message")
    gone, clean = well("ended"), well("left", "alive")
    slowest = max(report.ended_s for report in reports)
    return [
        Result("faults: rank, phase, device, host and cause named", f"{count}", f"{named} of {count}", named == count),
        Result("faults: table of last actions", f"{count}", f"{with_table} of {count}", with_table == count),
        Result(
            "faults: all ranks gone in 10 s (stopped: --timeout + 10 s)",
            f"{count}",
            f"{gone} of {count}, slowest {slowest:.1f} s",
            gone == count,
        ),
        Result("faults: nothing left behind", f"{count}", f"{clean} of {count}", clean == count),
    ]
