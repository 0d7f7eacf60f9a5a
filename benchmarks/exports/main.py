"""Exports: accepted by the engines, imported again, and fast enough.

    make test-exports                                              sets up the engines once
    build/exports-venv/bin/python benchmarks/exports/main.py          all parts, a few minutes
    build/exports-venv/bin/python benchmarks/exports/main.py --quick  two models, few rounds

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.exports.deepspeed_speed import check_deepspeed_speed, run_deepspeed_speed
from benchmarks.exports.engines import check_engines, rows_of, table
from benchmarks.exports.start_up import check_start_up
from benchmarks.exports.torch_speed import check_torch_speed, run_torch_speed
from benchmarks.results import Result

PARTS = ("engines", "start", "torch", "deepspeed")


def results_of(part: str, *, quick: bool) -> Iterator[Result]:
    """Run a part."""
    if part == "engines":
        rows = list(rows_of(quick=quick))
        print(table(rows))
        yield from check_engines(rows)
    elif part == "start":
        yield from check_start_up(2 if quick else 5)
    elif part == "torch":
        yield from check_torch_speed(run_torch_speed(_log, quick=quick))
    else:
        yield from check_deepspeed_speed(run_deepspeed_speed(_log, quick=quick))


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run the parts and print their targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    options = parser.parse_args()
    is_short = False
    for part in options.only or PARTS:
        for result in results_of(part, quick=options.quick):
            print(result.line(quick=options.quick), flush=True)
            is_short |= not result.reached and not (options.quick and result.is_over_all)
    return int(is_short)


if __name__ == "__main__":
    sys.exit(main())
