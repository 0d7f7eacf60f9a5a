"""Training with a plan against a single process, torch.distributed.pipelining, and the prediction.

    python benchmarks/runtime/main.py              all parts, about 90 minutes; resumes a stopped run
    python benchmarks/runtime/main.py --tables     the tables of the README, from the records
    python benchmarks/runtime/main.py --quick      small models, few rounds
    python benchmarks/runtime/main.py --few-peers  of torch only 1F1B with equal layers, without a search for cuts

Two processes of one thread each: nothing else should run on the machine. Prints one line per target with the
measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.records import Records, Task, add_record_options, open_records
from benchmarks.results import Result
from benchmarks.runtime import overhead, peaks, speed, tensor_transfer, workloads
from benchmarks.runtime.measurements import SpeedRun
from benchmarks.runtime.tables import overhead_table, prediction_table, speed_tables
from benchmarks.runtime.targets import check_targets, notes_on
from penstock import __version__

PARTS = ("speed", "overhead", "memory", "transfer")
RECORDS = Path(__file__).parents[2] / "build" / "runtime.jsonl"
SPEED = (("gpt", 8), ("gpt", 16), ("vgg", 8), ("mlp", 8), ("heavy3", 8), ("heavy5", 8))
MAIN = ("gpt", "vgg", "mlp")
"""The models of the other parts."""
QUICK_SPEED = (("gpt", 8),)


def tasks_of(part: str, *, quick: bool, few: bool) -> list[Task]:
    """The tasks of a part."""
    if part == "speed":
        more = ("few peers",) if few else ()
        return [Task(part, (*item, *more)) for item in (QUICK_SPEED if quick else SPEED)]
    if part == "overhead":
        return [Task(part, (name,)) for name in (("gpt",) if quick else MAIN)]
    if part == "transfer":
        return [Task(part, ())]
    return [Task(part, (name, 8)) for name in (("mlp",) if quick else MAIN)]


def measure(task: Task, *, quick: bool) -> object:
    """Run one task."""
    if task.part == "transfer":
        return tensor_transfer.run_transfer(10 if quick else 100)
    name = str(task.about[0])
    workload = (workloads.QUICK if quick else workloads.FULL)[name]
    if task.part == "overhead":
        return overhead.run_overhead(name, 10 if quick else 240)
    num_microbatches = int(task.about[1])
    if task.part == "speed":
        effort = speed.FULL if len(task.about) == 2 else speed.FEW
        effort = speed.HEAVY if name.startswith("heavy") else effort if num_microbatches == 8 else speed.LONG
        effort = speed.QUICK if quick else effort
        return speed.run_speed(workload, num_microbatches, effort, log)
    return peaks.run_peaks(workload, num_microbatches, 0.5 if quick else 8.0, only="balanced, 1f1b" if quick else "")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def results_of(part: str, tasks: list[Task], records: Records) -> Iterator[Result]:
    """The targets of a part, from the records."""
    if part == "speed":
        yield from check_targets(records.of(tasks, SpeedRun))
    elif part == "overhead":
        yield from overhead.check_overhead(_overheads(tasks, records))
    elif part == "memory":
        yield from peaks.check_memory(_peaks(tasks, records))
    else:
        yield from tensor_transfer.check_transfer(_transfers(tasks, records))


def tables_of(part: str, tasks: list[Task], records: Records) -> Iterator[str]:
    """The tables of a part, from the records."""
    num_missing = len(records.missing(tasks))
    left = f"; {num_missing} are still missing" if num_missing else ""
    yield f"## {part.capitalize()}\n\n{len(tasks) - num_missing} of {len(tasks)} measured{left}."
    if num_missing == len(tasks):
        return
    if part == "speed":
        runs = records.of(tasks, SpeedRun)
        yield from speed_tables(runs)
        yield prediction_table(runs)
        yield "\n".join(f"- {note}" for note in notes_on(runs))
    elif part == "overhead":
        yield overhead_table(_overheads(tasks, records))
    elif part == "memory":
        yield peaks.peak_table(_peaks(tasks, records))
    else:
        yield tensor_transfer.transfer_table(_transfers(tasks, records))


def _overheads(tasks: list[Task], records: Records) -> list[overhead.OverheadRun]:
    return [run for runs in records.of(tasks, list[overhead.OverheadRun]) for run in runs]


def _peaks(tasks: list[Task], records: Records) -> list[peaks.PeakRun]:
    return [run for runs in records.of(tasks, list[peaks.PeakRun]) for run in runs]


def _transfers(tasks: list[Task], records: Records) -> list[tensor_transfer.TransferRun]:
    return [run for runs in records.of(tasks, list[tensor_transfer.TransferRun]) for run in runs]


def read_options() -> argparse.Namespace:
    """The command-line options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, without records")
    parser.add_argument("--few-peers", action="store_true", help="of torch's schedules only 1F1B with equal layers")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    add_record_options(parser, RECORDS, __version__)
    return parser.parse_args()


def main() -> int:
    options = read_options()
    records = open_records(options)
    results: list[Result] = []
    for part in options.only or PARTS:
        tasks = tasks_of(part, quick=options.quick, few=options.few_peers)
        if options.tables:
            print("\n\n".join(tables_of(part, tasks, records)), end="\n\n")
            continue
        print(f"{part}:", flush=True)
        for task in records.missing(tasks):
            log(f"  {task.part} {' '.join(map(str, task.about))}")
            start_time = time.perf_counter()
            records.add(task, measure(task, quick=options.quick), time.perf_counter() - start_time)
        for result in results_of(part, tasks, records):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
        if part == "speed":
            for note in notes_on(records.of(tasks, SpeedRun)):
                print(f"  {note}")
    decided = [result for result in results if not (options.quick and result.is_over_all)]
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
