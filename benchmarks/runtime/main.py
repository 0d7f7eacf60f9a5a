"""Training by a plan against one process, against torch's own pipelining, and against what was predicted.

    python benchmarks/runtime/main.py              all of it, about 90 minutes (an estimate); a stopped run goes on
    python benchmarks/runtime/main.py --tables     the tables of the README, from what is on record
    python benchmarks/runtime/main.py --quick      small models, few rounds
    python benchmarks/runtime/main.py --few-peers  of torch only 1F1B with equal layers: nothing is tried out first

Two processes of one thread each: nothing else should run on the machine. Prints one line a target: what it is, the
target, what was measured, and `ok` or `short`; exits 1 if any falls short.
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
from benchmarks.runtime.targets import against_targets, notes_on
from benchmarks.runtime.tables import overhead_table, prediction_table, speed_tables
from penstock import __version__

PARTS = ("speed", "overhead", "memory", "handing")
RECORDS = Path(__file__).parents[2] / "build" / "runtime.jsonl"
SPEED = (("gpt", 8), ("gpt", 16), ("vgg", 8), ("mlp", 8))
QUICK_SPEED = (("gpt", 8),)


def tasks_of(part: str, *, quick: bool, few: bool) -> list[Task]:
    """What is to be measured for a part."""
    if part == "speed":
        more = ("few peers",) if few else ()
        return [Task(part, (*item, *more)) for item in (QUICK_SPEED if quick else SPEED)]
    if part == "overhead":
        return [Task(part, (name,)) for name in (("gpt",) if quick else workloads.FULL)]
    if part == "handing":
        return [Task(part, ())]
    return [Task(part, (name, 8)) for name in (("mlp",) if quick else workloads.FULL)]


def measure(task: Task, *, quick: bool) -> object:
    """Do it."""
    if task.part == "handing":
        return tensor_transfer.run_handing(10 if quick else 100)
    name = str(task.about[0])
    subject = (workloads.QUICK if quick else workloads.FULL)[name]
    if task.part == "overhead":
        return overhead.run_overhead(name, 10 if quick else 240)
    num_microbatches = int(task.about[1])
    if task.part == "speed":
        effort = speed.FULL if len(task.about) == 2 else speed.FEW
        effort = speed.QUICK if quick else effort if num_microbatches == 8 else speed.LONG
        return speed.run_speed(subject, num_microbatches, effort, say)
    return peaks.run_peaks(subject, num_microbatches, 0.5 if quick else 8.0, only="balanced, 1f1b" if quick else "")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def results_of(part: str, tasks: list[Task], records: Records) -> Iterator[Result]:
    """The targets of a part, from what is on record."""
    if part == "speed":
        yield from against_targets(records.of(tasks, SpeedRun))
    elif part == "overhead":
        yield from overhead.against_limit(_overheads(tasks, records))
    elif part == "memory":
        yield from peaks.against_model(_peaks(tasks, records))
    else:
        yield from tensor_transfer.against_messages(_handings(tasks, records))


def tables_of(part: str, tasks: list[Task], records: Records) -> Iterator[str]:
    """The tables of a part, from what is on record."""
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
        yield tensor_transfer.handing_table(_handings(tasks, records))


def _overheads(tasks: list[Task], records: Records) -> list[overhead.OverheadRun]:
    return [run for runs in records.of(tasks, list[overhead.OverheadRun]) for run in runs]


def _peaks(tasks: list[Task], records: Records) -> list[peaks.PeakRun]:
    return [run for runs in records.of(tasks, list[peaks.PeakRun]) for run in runs]


def _handings(tasks: list[Task], records: Records) -> list[tensor_transfer.HandingRun]:
    return [run for runs in records.of(tasks, list[tensor_transfer.HandingRun]) for run in runs]


def read_options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, kept nowhere")
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
            say(f"  {task.part} {' '.join(map(str, task.about))}")
            began = time.perf_counter()
            records.add(task, measure(task, quick=options.quick), time.perf_counter() - began)
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
