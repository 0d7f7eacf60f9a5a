"""Accelerators, without one: what must hold on GPUs and can be shown on a CPU.

    python benchmarks/accelerators/main.py                 all parts, about 15 minutes
    python benchmarks/accelerators/main.py --quick         fewer plans and ranks, under 50 seconds
    python benchmarks/accelerators/main.py --only scale    one part: messages, scale, host_waits or random_plans

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.accelerators.host_waits import check_host_waits
from benchmarks.accelerators.messages import check_messages
from benchmarks.accelerators.random_plans import check_random_plans
from benchmarks.accelerators.scale import check_scale
from benchmarks.results import Result

PARTS: dict[str, Callable[..., Iterator[Result]]] = {
    "messages": check_messages,
    "scale": check_scale,
    "host_waits": check_host_waits,
    "random_plans": check_random_plans,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer plans and ranks, under 50 seconds")
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
