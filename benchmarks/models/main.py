"""Models as users have them: transformers and others are profiled, planned and trained as they are.

    python benchmarks/models/main.py                 all parts
    python benchmarks/models/main.py --quick         few models, small sizes
    python benchmarks/models/main.py --only training one part: training, entering or speed

Needs transformers; nothing is downloaded. Two processes of one thread each; for the parts `entering` and `speed`
nothing else should run on the machine. Prints one line per model and per target with the measurement and `ok` or
`short`. Exits with 1 if a target is missed.
"""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.models.entering import check_entering
from benchmarks.models.speed import check_speed
from benchmarks.models.training import check_models
from benchmarks.results import Result

PARTS: dict[str, Callable[..., Iterator[Result]]] = {
    "training": check_models,
    "entering": check_entering,
    "speed": check_speed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few models, small sizes")
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part; may be given several times")
    options = parser.parse_args()
    os.environ["TRANSFORMERS_VERBOSITY"] = "critical"  # small configurations have unusual tokens
    warnings.simplefilter("ignore", UserWarning)
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    results: list[Result] = []
    for part in options.only or PARTS:
        print(f"{part}:", flush=True)
        for result in PARTS[part](quick=options.quick):
            results.append(result)
            print(result.line(quick=options.quick), flush=True)
    decided = [result for result in results if not result.is_over_all] if options.quick else results
    return 0 if all(result.reached for result in decided) else 1


if __name__ == "__main__":
    sys.exit(main())
