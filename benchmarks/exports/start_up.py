"""Target 4: `penstock export` in less than a second, without torch."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.exports.penstock_command import penstock
from benchmarks.results import Result
from penstock.export import ENGINES

TARGET_S = 1.0
CLUSTER = "4 x A100-80 @ 100 GB/s"
_CODE = """
import sys
sys.modules["torch"] = None  # an import of torch raises
from penstock.cli.main import main
sys.exit(main())
"""


def check_start_up(rounds: int) -> Iterator[Result]:
    """The least CPU seconds of several runs, for every engine: the wall time on an idle machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slowest, slowest_engine = 0.0, ""
        for engine in ENGINES:
            plan = folder / f"{engine}.json"
            words = ("plan", "--profile", "llama-3-8b", "-b", "1", "--cluster", CLUSTER, "-m", "8", "--work", "0")
            penstock(*words, "--no-replication", "--engine", engine, "-o", str(plan))
            seconds = min(_export_s(engine, plan, folder / f"{engine}-{number}") for number in range(rounds))
            if seconds > slowest:
                slowest, slowest_engine = seconds, engine
    yield Result(
        "penstock export without torch, CPU seconds, the slowest engine",
        f"< {TARGET_S:.1f} s",
        f"{slowest:.2f} s ({slowest_engine})",
        slowest < TARGET_S,
    )


def _export_s(engine: str, plan: Path, folder: Path) -> float:
    command = [sys.executable, "-c", _CODE, "export", str(plan), "--to", engine, "-o", str(folder), "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
