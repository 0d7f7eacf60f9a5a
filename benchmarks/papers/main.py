"""The papers' headlines, run: Bi-Partition and SPP against the planners that the papers compare with.

    python benchmarks/papers/main.py             all parts, about 40 minutes; resumes a stopped run
    python benchmarks/papers/main.py --tables    the tables of the README, from the records
    python benchmarks/papers/main.py --quick     one problem per paper and one small model

The emulated part needs root (network namespaces), the part `two ranks` a machine with two idle cores. Reads instances
from ../shared/instances by default (`--instances`). Prints one line per target with the measurement and `ok` or
`short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.instances import DEFAULT_FOLDER
from benchmarks.papers import emulated, two_ranks
from benchmarks.papers.cases import PAPERS
from benchmarks.papers.emulated import PaperRun
from benchmarks.papers.two_ranks import TwoSets
from benchmarks.records import Records, Task, add_record_options, open_records
from benchmarks.results import Result
from penstock import __version__

PARTS = ("emulated", "two ranks")
RECORDS = Path(__file__).parents[2] / "build" / "papers.jsonl"


def read_options() -> argparse.Namespace:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds, without records")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given twice")
    add_record_options(parser, RECORDS, __version__)
    parser.add_argument("--instances", type=Path, default=DEFAULT_FOLDER, help="the folder of published profiles")
    return parser.parse_args()


def tasks_of(part: str, *, quick: bool) -> list[Task]:
    """The tasks of a part."""
    if part == "emulated":
        return [task for paper in PAPERS for task in emulated.tasks_of(paper, quick=quick)]
    return two_ranks.tasks_of(quick=quick)


def measure(task: Task, options: argparse.Namespace) -> object:
    """Run one task."""
    if task.part == "emulated":
        return emulated.run_task(task, options.instances)
    return two_ranks.run_task(task, log, quick=options.quick)


def results_of(part: str, tasks: list[Task], records: Records) -> Iterator[Result]:
    """The targets of a part, from the records."""
    if part == "emulated":
        return emulated.check_papers(records.of(tasks, PaperRun))
    return two_ranks.check_two_sets(records.of(tasks, TwoSets))


def tables_of(part: str, tasks: list[Task], records: Records) -> Iterator[str]:
    """The tables of a part, from the records."""
    if part == "emulated":
        yield from emulated.tables(records.of(tasks, PaperRun))
    else:
        yield two_ranks.table(records.of(tasks, TwoSets))


def log(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run the parts and print their targets."""
    options = read_options()
    if not options.instances.is_dir():
        print(f"{options.instances} does not exist. Pass the folder of published profiles with --instances.")
        return 2
    records = open_records(options)
    results: list[Result] = []
    for part in options.only or PARTS:
        tasks = tasks_of(part, quick=options.quick)
        if options.tables:
            print("\n\n".join(tables_of(part, tasks, records)), end="\n\n")
            continue
        for task in records.missing(tasks):
            log(f"  {task.part} {' '.join(map(str, task.about))}")
            start_time = time.perf_counter()
            records.add(task, measure(task, options), time.perf_counter() - start_time)
        for result in results_of(part, tasks, records):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
    decided = [result for result in results if not (options.quick and result.is_over_all)]
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
