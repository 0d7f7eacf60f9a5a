"""The simulator against emulation: plans run by the real executor over shaped links, with devices that sleep.

    python benchmarks/emulation/main.py             all plans, about half an hour; resumes a stopped run
    python benchmarks/emulation/main.py --tables    the tables of the README, from the records
    python benchmarks/emulation/main.py --quick     two plans, under 50 seconds

Needs root (network namespaces). Reads instances from ../shared/instances by default (`--instances`). Prints
one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.emulation.cases import QUICK, all_cases
from benchmarks.emulation.emulated_runs import EmulatedRun, run_all
from benchmarks.emulation.tables import tables
from benchmarks.emulation.targets import check_targets
from benchmarks.instances import DEFAULT_FOLDER
from benchmarks.records import Task, add_record_options, open_records
from penstock import __version__

RECORDS = Path(__file__).parents[2] / "build" / "emulation.jsonl"


def read_options() -> argparse.Namespace:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds, without records")
    add_record_options(parser, RECORDS, __version__)
    parser.add_argument("--most", type=int, default=None, metavar="N", help="emulate at most N plans in this run")
    parser.add_argument("--instances", type=Path, default=DEFAULT_FOLDER, help="the folder of published profiles")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    if not options.instances.is_dir():
        print(f"{options.instances} does not exist. Pass the folder of published profiles with --instances.")
        return 2
    records = open_records(options)
    tasks = [Task("emulation", case) for case in (QUICK if options.quick else all_cases())]
    if not options.tables:
        run_all(records.missing(tasks)[: options.most], records, options.instances)
    runs = records.of(tasks, EmulatedRun)
    if options.tables:
        print("\n\n".join(tables(runs)))
        return 0
    results = list(check_targets(runs))
    for result in results:
        print(result.line(quick=options.quick))
    decided = [result for result in results if not (options.quick and result.is_over_all)]
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
