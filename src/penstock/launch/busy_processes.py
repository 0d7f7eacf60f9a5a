"""Processes that measure the same model at the same time, as they will train at the same time.

Devices of one computer share its memory and caches: each is slower while others compute. Run as a program, this file is
one such process, which goes on until it is ended.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.launch.model_script import load_model

LIMIT_S = 120.0


@contextmanager
def companions(num: int, source: str, options: dict[str, Any]) -> Iterator[None]:
    """So many of them compute meanwhile. `options` are those of `measure`, and `threads`."""
    if not num:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{number}" for number in range(num)]
        command = [sys.executable, "-m", "penstock.launch.busy_processes", source, json.dumps(options)]
        started = [
            subprocess.Popen([*command, str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for file in files
        ]
        try:
            until = time.monotonic() + LIMIT_S
            while not all(file.exists() for file in files):
                if any(process.poll() is not None for process in started) or time.monotonic() > until:
                    raise InputError(
                        "--beside: a second process with the same model did not get to work",
                        hint="The script must be able to run several times at once; or leave --beside out.",
                    )
                time.sleep(0.05)
            yield
        finally:
            for process in started:
                process.kill()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)


def _be_a_companion(source: str, options: dict[str, Any], file: Path) -> None:
    import torch

    from penstock.profiler import measure

    threads = options.pop("threads")
    if threads:
        torch.set_num_threads(threads)
    given = load_model(source)
    measure(
        given.model,
        given.inputs,
        given.loss,
        targets=given.targets,
        **options,
        seconds=float("inf"),
        steady=0.0,
        report=lambda _: file.touch(),
    )


if __name__ == "__main__":
    _be_a_companion(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]))
