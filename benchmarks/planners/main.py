"""The planners against each other, their papers, the bound, exact solutions and the clock; targets in README.md.

    python benchmarks/planners/main.py [--jobs 2]      all of it; goes on where a stopped run was
    python benchmarks/planners/main.py --tables        the tables of the README, from what is on record
    python benchmarks/planners/main.py --quick         a smaller run of every part, under 50 seconds

Instances are read from ../shared/instances unless another folder is given. Prints one line a target: what it is, the
target, what was measured, and `ok` or `short`; exits 1 if any falls short.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.instances import DEFAULT_FOLDER
from benchmarks.planners import cases, growth, small, speed
from benchmarks.planners.comparison import against_bounds, against_each_other
from benchmarks.planners.grids import against_grids
from benchmarks.planners.headlines import against_papers
from benchmarks.records import Records, Task, add_record_options, open_records
from benchmarks.results import Result
from benchmarks.planners.task_runner import run_missing
from benchmarks.planners.tables import case_tables, growth_tables, small_table, speed_table
from penstock import __version__

PARTS = ("cases", "small", "speed", "growth")
RECORDS = Path(__file__).parents[2] / "build" / "planners.jsonl"


def tasks_of(part: str, folder: Path, *, quick: bool) -> list[Task]:
    """What is to be measured for a part."""
    if part == "cases":
        chosen = cases.QUICK if quick else cases.all_cases(folder)
        return [Task(part, case, cases.digests(case, folder)) for case in chosen]
    if part == "small":
        return [Task(part, case) for case in (small.QUICK if quick else small.ALL)]
    if part == "speed":
        return [Task(part, item) for item in (speed.QUICK if quick else speed.ALL)]
    return [Task(part, point) for point in (growth.QUICK if quick else growth.ALL)]


def results_of(part: str, tasks: list[Task], records: Records, *, quick: bool) -> Iterator[Result]:
    """The targets of a part, from what is on record."""
    if part == "cases":
        runs = records.of(tasks, cases.CaseRun)
        yield from against_each_other(runs)
        yield from against_papers(runs)
        yield from against_bounds(runs)
    elif part == "small":
        yield from small.against_exact(records.of(tasks, small.SmallRun))
    elif part == "speed":
        yield from speed.against_the_clock(records.of(tasks, speed.TimedRun))
        yield from against_grids(quick=quick)
    else:
        for text in growth_tables(records.of(tasks, growth.PointRun)):
            print(text)


def tables_of(part: str, tasks: list[Task], records: Records) -> Iterator[str]:
    """The tables of a part, from what is on record."""
    num_missing = len(records.missing(tasks))
    took = f"{records.took_s(tasks) / 60:.0f} minutes of computing"
    left = f"; {num_missing} are still missing" if num_missing else ""
    yield f"## {part.capitalize()}\n\n{len(tasks) - num_missing} of {len(tasks)} measured, {took}{left}."
    if num_missing == len(tasks):
        return
    if part == "cases":
        yield from case_tables(records.of(tasks, cases.CaseRun))
    elif part == "small":
        yield small_table(records.of(tasks, small.SmallRun))
    elif part == "speed":
        yield speed_table(records.of(tasks, speed.TimedRun))
    else:
        yield from growth_tables(records.of(tasks, growth.PointRun))


def read_options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds, kept nowhere")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    add_record_options(parser, RECORDS, __version__)
    parser.add_argument("--jobs", type=int, choices=range(1, 65), default=1, metavar="N", help="processes for cases")
    parser.add_argument("--instances", type=Path, default=DEFAULT_FOLDER, help="the folder of published profiles")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    if not options.instances.is_dir():
        print(f"no published profiles in {options.instances}: name their folder with --instances")
        return 2
    records = open_records(options)
    results: list[Result] = []
    for part in options.only or PARTS:
        tasks = tasks_of(part, options.instances, quick=options.quick)
        if options.tables:
            print("\n\n".join(tables_of(part, tasks, records)), end="\n\n")
            continue
        print(f"{part}:", flush=True)
        # What is timed has the machine to itself.
        num_jobs = options.jobs if part in ("cases", "small") else 1
        run_missing(tasks, records, options.instances, num_jobs)
        for result in results_of(part, tasks, records, quick=options.quick):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
    decided = [result for result in results if not (options.quick and result.is_over_all)]
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
