"""The re-laid tree against the one before: the same results to the bit, and faster.

    python benchmarks/house/main.py            all of it
    python benchmarks/house/main.py --quick    one repetition, 3 problems, 10 steps

Both trees run in turn with the same interpreter and libraries. The tree before is the commit `BEFORE`, in a worktree
under build/. Prints one line per target: what it is, the target, what was measured, and `ok` or `short`; exits 1 if any
falls short. The machine should be idle.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.results import Result

REPOSITORY = Path(__file__).parents[2]
HERE = Path(__file__).parent
BEFORE = "a817759"
STEPS, QUICK_STEPS = 40, 10
"""Steps of a pipeline in each round."""
PLAN = "from penstock.cli.main import main; main()"


Measured = TypeVar("Measured")


class Tree(NamedTuple):
    """A checkout to measure, and how it spells the micro-batch size."""

    path: Path
    micro_batch_size: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that imports this tree, from compiled modules as an installed package does."""
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, "PYTHONPATH": str(self.path / "src"), "OMP_NUM_THREADS": "1"}

    def run(self, *words: str) -> float:
        """Seconds of a Python process that imports this tree's penstock."""
        begun = time.perf_counter()
        subprocess.run(
            [sys.executable, *words], env=self.environment, cwd=self.path, check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - begun

    def command(self, *words: str) -> float:
        """Seconds of one `penstock` command as a whole process."""
        return self.run("-c", PLAN, *words)


def tree_before() -> Tree:
    """The tree before the re-layout, checked out when it is first needed."""
    path = REPOSITORY / "build" / "house-before"
    if not path.exists():
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(path), BEFORE], cwd=REPOSITORY, check=True, capture_output=True
        )
    return Tree(path, "--rows")


def in_turn(repeats: int, *measured: Callable[[], Measured]) -> list[list[Measured]]:
    """Measure several things in turn, so that what else happens on the machine hits all of them."""
    rounds = [[run() for run in measured] for _ in range(repeats)]
    return [list(column) for column in zip(*rounds, strict=True)]


def commands(before: Tree, now: Tree, repeats: int) -> Iterator[Result]:
    """The command line as whole processes."""
    vgg = ("plan", "--profile", "vgg16", "--cluster", "8 x A100-40 @ 100 GB/s")

    def gpt(tree: Tree) -> float:
        cluster = str(REPOSITORY / "examples" / "clusters" / "two-hosts.toml")
        return tree.command("plan", "--profile", "gpt2-xl", tree.micro_batch_size, "4", "--cluster", cluster)

    for tree in (before, now):
        gpt(tree)  # compiles and caches what both problems and --help need
    old, new, help_s = in_turn(
        repeats, lambda: before.command(*vgg), lambda: now.command(*vgg), lambda: now.command("--help")
    )
    seconds = statistics.median(new)
    yield Result(
        "plan VGG16 on 8 devices, whole process",
        "<= 1.2 s",
        f"{seconds:.2f} s (before: {statistics.median(old):.2f} s)",
        seconds <= 1.2,
    )
    seconds = statistics.median(help_s)
    yield Result("penstock --help", "<= 0.1 s", f"{seconds:.3f} s", seconds <= 0.1)

    old, new = in_turn(repeats, lambda: gpt(before), lambda: gpt(now))
    ratio = statistics.median(one / other for one, other in zip(old, new, strict=True))
    figures = f"{ratio:.2f} x ({statistics.median(old):.2f} s, {statistics.median(new):.2f} s)"
    yield Result("plan gpt2-xl on two hosts, times as fast", ">= 1.4 x", figures, ratio >= 1.4)


def ranks(tree: Tree, plan: Path, num_steps: int) -> dict[str, float]:
    """Two ranks of one pipeline; the slower one's seconds for making it and, if it runs steps, for a step."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file in ("plan.json", "profile.json"):
            (directory / file).write_bytes((plan / file).read_bytes())
        command = [sys.executable, str(HERE / "rank.py"), "run", name, str(num_steps)]
        processes = [
            subprocess.Popen([*command, str(rank)], env=tree.environment, stderr=subprocess.PIPE) for rank in range(2)
        ]
        for process in processes:
            _, errors = process.communicate(timeout=300)
            if process.returncode:
                raise SystemExit(f"a rank failed under {tree.path}:\n{errors.decode()[-2000:]}")
        found = [json.loads((directory / f"{rank}.json").read_text()) for rank in range(2)]
    return {key: max(item[key] for item in found) for key in found[0]}


def plan_files(tree: Tree, directory: Path) -> Path:
    """The profile and the plan of rank.py's model, as this tree writes them."""
    directory.mkdir()
    tree.run(str(HERE / "rank.py"), "plan", str(directory))
    return directory


def pipelines(before: Tree, now: Tree, repeats: int, num_steps: int) -> Iterator[Result]:
    """Making a pipeline from a plan file, and the runtime's cost per action."""
    with tempfile.TemporaryDirectory() as name:
        old_files, new_files = plan_files(before, Path(name) / "before"), plan_files(now, Path(name) / "now")
        for tree, files in ((before, old_files), (now, new_files)):
            ranks(tree, files, 0)  # compiles and caches
        old, new = in_turn(
            repeats, lambda: ranks(before, old_files, num_steps), lambda: ranks(now, new_files, num_steps)
        )
    old_s, new_s = ([item["start_s"] for item in rounds] for rounds in (old, new))
    ratio = statistics.median(one / other for one, other in zip(old_s, new_s, strict=True))
    figures = f"{ratio:.2f} x ({statistics.median(old_s):.3f} s, {statistics.median(new_s):.3f} s)"
    yield Result("make a pipeline of 2 ranks from a plan file, times as fast", ">= 2 x", figures, ratio >= 2)
    old_s, new_s = ([item["step_s"] for item in rounds] for rounds in (old, new))
    ratio = statistics.median(other / one for one, other in zip(old_s, new_s, strict=True))
    figures = f"{ratio:.3f} ({statistics.median(old_s) * 1e3:.2f} ms, {statistics.median(new_s) * 1e3:.2f} ms a step)"
    yield Result("runtime cost of a step, now / before", "<= 1.05", figures, ratio <= 1.05)


def records(before: Tree, now: Tree, instances: Path, *, quick: bool) -> Iterator[Result]:
    """Plans, orders, predicted times, proofs and memory of both trees, to the bit."""
    if not instances.is_dir():
        print(f"note: {instances} is not there: plans are not compared")
        return
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / "before.json", Path(name) / "now.json"]
        for tree, path in zip((before, now), paths, strict=True):
            tree.run(str(HERE / "record.py"), str(path), str(instances), *(["--quick"] if quick else []))
        old, new = (json.loads(path.read_text()) for path in paths)
    differ = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    problems = len({key.rsplit(" | ", 2)[0] for key in old})
    for key in differ[:5]:
        print(f"differs: {key}")
    yield Result(
        f"plans, orders, times and proofs of {problems} problems, {len(old):,} cases",
        "equal to the bit",
        f"{len(differ)} differ",
        not differ,
    )


def main(words: Sequence[str]) -> int:
    """Print a line per target; 1 if any falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--instances", type=Path, default=REPOSITORY.parent / "shared" / "instances")
    asked = parser.parse_args(words)
    before, now = tree_before(), Tree(REPOSITORY, "--micro-batch-size")
    repeats = 1 if asked.quick else 9
    reached = True
    for part in (
        commands(before, now, repeats),
        pipelines(before, now, repeats, QUICK_STEPS if asked.quick else STEPS),
        records(before, now, asked.instances, quick=asked.quick),
    ):
        for result in part:
            reached &= result.reached
            print(result.line(quick=asked.quick), flush=True)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
