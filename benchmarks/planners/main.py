"""The planners against each other, their papers, the lower bound, exact solutions and time limits.

    python benchmarks/planners/main.py [--jobs 2]      all parts; resumes a stopped run
    python benchmarks/planners/main.py --tables        the tables of the README, from the records
    python benchmarks/planners/main.py --quick         a smaller run of every part, under 50 seconds

Reads instances from ../shared/instances by default (`--instances`). Prints one line per target with the
measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.instances import DEFAULT_FOLDER
from benchmarks.planners import cases, growth, small_cases, speed
from benchmarks.planners.comparison import check_advantage, check_bounds
from benchmarks.planners.grids import check_grids
from benchmarks.planners.headlines import check_papers
from benchmarks.planners.preference import check_preference
from benchmarks.planners.tables import case_tables, growth_tables, small_table, speed_table
from benchmarks.planners.task_runner import run_missing
from benchmarks.planners.tight_memory import check_tight_memory
from benchmarks.records import Records, Task, add_record_options, open_records
from benchmarks.results import Result
from penstock import __version__

PARTS = ("cases", "small", "memory", "preference", "speed", "growth")
RECORDS = Path(__file__).parents[2] / "build" / "planners.jsonl"


def tasks_of(part: str, folder: Path, *, quick: bool) -> list[Task]:
    """The tasks of a part."""
    if part == "cases":
        chosen = cases.QUICK if quick else cases.all_cases(folder)
        return [Task(part, case, cases.digests(case, folder)) for case in chosen]
    if part == "small":
        return [Task(part, case) for case in (small_cases.QUICK if quick else small_cases.ALL)]
    if part in ("memory", "preference"):
        return []
    if part == "speed":
        return [Task(part, item) for item in (speed.QUICK if quick else speed.ALL)]
    return [Task(part, point) for point in (growth.QUICK if quick else growth.ALL)]


def results_of(part: str, tasks: list[Task], records: Records, *, quick: bool) -> Iterator[Result]:
    """The targets of a part, from the records."""
    if part == "cases":
        runs = records.of(tasks, cases.CaseRun)
        yield from check_advantage(runs)
        yield from check_papers(runs)
        yield from check_bounds(runs)
    elif part == "small":
        yield from small_cases.check_exact(records.of(tasks, small_cases.SmallRun))
    elif part == "memory":
        yield from check_tight_memory(quick=quick)
    elif part == "preference":
        yield from check_preference(quick=quick)
    elif part == "speed":
        yield from speed.check_speed(records.of(tasks, speed.TimedRun))
        yield from check_grids(quick=quick)
    else:
        for text in growth_tables(records.of(tasks, growth.PointRun)):
            print(text)


def tables_of(part: str, tasks: list[Task], records: Records) -> Iterator[str]:
    """The tables of a part, from the records."""
    num_missing = len(records.missing(tasks))
    took = f"{records.took_s(tasks) / 60:.0f} minutes of computation"
    left = f"; {num_missing} are still missing" if num_missing else ""
    yield f"## {part.capitalize()}\n\n{len(tasks) - num_missing} of {len(tasks)} measured, {took}{left}."
    if num_missing == len(tasks):  # also a part without records
        return
    if part == "cases":
        yield from case_tables(records.of(tasks, cases.CaseRun))
    elif part == "small":
        yield small_table(records.of(tasks, small_cases.SmallRun))
    elif part == "speed":
        yield speed_table(records.of(tasks, speed.TimedRun))
    else:
        yield from growth_tables(records.of(tasks, growth.PointRun))


def read_options() -> argparse.Namespace:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds, without records")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    add_record_options(parser, RECORDS, __version__)
    parser.add_argument("--jobs", type=int, choices=range(1, 65), default=1, metavar="N", help="processes for cases")
    parser.add_argument("--instances", type=Path, default=DEFAULT_FOLDER, help="the folder of published profiles")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    if not options.instances.is_dir():
        print(f"{options.instances} does not exist. Pass the folder of published profiles with --instances.")
        return 2
    records = open_records(options)
    results: list[Result] = []
    for part in options.only or PARTS:
        tasks = tasks_of(part, options.instances, quick=options.quick)
        if options.tables:
            print("\n\n".join(tables_of(part, tasks, records)), end="\n\n")
            continue
        print(f"{part}:", flush=True)
        # Parts that measure time run alone.
        num_jobs = options.jobs if part in ("cases", "small") else 1
        run_missing(tasks, records, options.instances, num_jobs)
        for result in results_of(part, tasks, records, quick=options.quick):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
    decided = [result for result in results if not (options.quick and result.is_over_all)]
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
