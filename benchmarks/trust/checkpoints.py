"""Checkpoints: nothing wrong is ever loaded, and the last good one is found."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import Result
from tests.support.runtime.checkpoint_runs import load_filled, save_filled
from tests.support.runtime.damaged_checkpoints import DAMAGES, NEWEST
from tests.support.runtime.killed_writers import kill_writers
from tests.support.runtime.rank_pool import RankPool

NUM_DAMAGED, NUM_DAMAGED_QUICK = 200, 36
NUM_KILLS, NUM_KILLS_QUICK = 100, 5
AT_ONCE = 20
"""Loads in one call of the pool, which has a deadline."""


def check_checkpoints(*, quick: bool) -> Iterator[Result]:
    """Damage checkpoints, and kill ranks that save."""
    with tempfile.TemporaryDirectory() as name:
        yield _check_damages(Path(name), NUM_DAMAGED_QUICK if quick else NUM_DAMAGED)
    with tempfile.TemporaryDirectory() as name:
        yield _check_kills(Path(name), NUM_KILLS_QUICK if quick else NUM_KILLS)


def _check_damages(place: Path, count: int) -> Result:
    """Damage the newest of two checkpoints. Loading must find the older one, with all its values."""
    rng = random.Random(1)
    pool = RankPool()
    try:
        pool.run(2, save_filled, str(place / "saved"), [2, 3])
        folders = [place / str(number) for number in range(count)]
        for number, folder in enumerate(folders):
            shutil.copytree(place / "saved", folder)
            DAMAGES[number % len(DAMAGES)](folder / NEWEST, rng)
        outcomes = []
        for first in range(0, count, AT_ONCE):
            # Every rank checks the values of what it has loaded.
            of_ranks = pool.run(2, load_filled, [str(folder) for folder in folders[first : first + AT_ONCE]], None)
            outcomes += list(zip(*of_ranks, strict=True))
    finally:
        pool.close()
    good = sum(all(outcome == "step 2" for outcome, _ in ranks) for ranks in outcomes)
    return Result("damaged checkpoints: the last good one is loaded", str(count), f"{good} of {count}", good == count)


def _check_kills(place: Path, count: int) -> Result:
    folder = place / "checkpoints"
    folder.mkdir()
    left: list[int] = []
    fault = ""
    try:
        left.extend(kill_writers(folder, count, random.Random(2)))
    except AssertionError as error:
        fault = f": {error}"
    measured = f"{len(left)} of {count}, {max(left, default=0)} with unfinished files{fault}"
    return Result("kills around saves: the last complete one resumes", str(count), measured, len(left) == count)
