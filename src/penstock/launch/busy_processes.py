"""Processes that measure the same model concurrently, to reproduce the load of several ranks on one machine.

Devices of one computer share its memory and caches: each is slower while others compute. Run as a program, this module
is one such process. It computes until it is killed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.dist import Launcher, exit_with_parent, run_dir
from penstock.errors import InputError
from penstock.launch.model_script import load_model

LIMIT_S = 120.0


@contextmanager
def busy_processes(num: int, source: str, options: dict[str, Any]) -> Iterator[None]:
    """Keep processes that measure the same model running.

    Args:
        num: The number of processes.
        source: The script and its function, as `script.py:make_model`.
        options: Options of `penstock.profiler.measure`, and `threads`.

    Raises:
        InputError: If a process ends, or does not begin to measure in time.
    """
    if not num:
        yield
        return
    with run_dir("penstock-busy-") as folder, Launcher() as launcher:
        ready = [folder / str(number) for number in range(num)]
        command = [sys.executable, "-m", "penstock.launch.busy_processes", source, json.dumps(options)]
        for path in ready:
            launcher.start([*command, str(path)], os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not launcher.wait_until(lambda: all(path.exists() for path in ready), LIMIT_S):
            raise InputError(
                "--busy-processes: a process did not start measuring",
                hint="The script must be able to run several times at once; otherwise leave --busy-processes out.",
            )
        yield


def _measure_forever(source: str, options: dict[str, Any], ready: Path) -> None:
    import torch

    from penstock.profiler import in_precision, measure

    exit_with_parent()
    threads = options.pop("threads")
    if threads:
        torch.set_num_threads(threads)
    sample = load_model(source, options.pop("device"))
    with in_precision(options.get("precision"), sample.model, sample.inputs, sample.loss) as used:
        measure(
            sample.model,
            used.inputs,
            used.loss,
            targets=sample.targets,
            **options,
            seconds=float("inf"),
            steady=0.0,
            report=lambda _: ready.touch(),
        )


if __name__ == "__main__":
    _measure_forever(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
