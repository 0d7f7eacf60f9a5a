"""Trust: failing ranks, hostile inputs, and what a long-lived process holds.

    python benchmarks/trust/main.py                  all parts; 200 faults take half an hour
    python benchmarks/trust/main.py --quick          fewer cases
    python benchmarks/trust/main.py --only inputs    one part: faults, checkpoints, elastic, adaptive, inputs, ...

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.results import Result
from benchmarks.trust.adaptive import check_adaptive
from benchmarks.trust.checkpoints import check_checkpoints
from benchmarks.trust.elastic import check_elastic
from benchmarks.trust.faults import check_faults
from benchmarks.trust.inputs import check_inputs
from benchmarks.trust.pipelines import check_pipelines

PARTS: dict[str, Callable[..., Iterator[Result]]] = {
    "faults": check_faults,
    "checkpoints": check_checkpoints,
    "elastic": check_elastic,
    "adaptive": check_adaptive,
    "inputs": check_inputs,
    "pipelines": check_pipelines,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    options = parser.parse_args()
    results: list[Result] = []
    for part in options.only or PARTS:
        print(f"{part}:", flush=True)
        for result in PARTS[part](quick=options.quick):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
    return 0 if all(result.reached for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
