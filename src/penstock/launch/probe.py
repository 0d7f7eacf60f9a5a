"""Several processes of this very command on one computer: rank 0 speaks, and all end together."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from penstock.launch.process import ending_politely

POLL_S = 0.05
GRACE_S = 8.0
"""When one has failed, the others have so long to say what they miss."""


def run_local(num_ranks: int) -> int:
    """Run this command again as so many ranks, and give the exit code of the first that failed, or 0."""
    words = [sys.executable, "-m", "penstock", *sys.argv[1:]]
    port = _free_port()
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryFile() as log:
        try:
            with ending_politely():
                for rank in range(num_ranks):
                    started.append(_start(words, rank, num_ranks, port, log))
                code = _wait(started)
        except KeyboardInterrupt:
            code = 130
        finally:
            for process in started:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
                process.wait()
        if code not in (0, 130) and started[0].returncode in (0, -signal.SIGKILL):
            # Rank 0 has not told what is wrong: what the others wrote does.
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace").rstrip() + "\n")
    return code


def is_started() -> bool:
    """Whether this process is a rank already."""
    return "RANK" in os.environ


def _start(words: Sequence[str], rank: int, num_ranks: int, port: int, log: IO[bytes]) -> subprocess.Popen[bytes]:
    threads = str(max(1, len(os.sched_getaffinity(0)) // num_ranks))
    environment = {
        "OMP_NUM_THREADS": threads,
        "GLOO_SOCKET_IFNAME": "lo",
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    is_first = rank == 0
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=None if is_first else subprocess.DEVNULL,
        stderr=None if is_first else log,
        env=environment,
    )


def _wait(started: Sequence[subprocess.Popen[bytes]]) -> int:
    end_s: float | None = None
    while any(process.poll() is None for process in started):
        failed = _first_failure(started)
        if failed:
            end_s = end_s or time.monotonic() + GRACE_S
            if time.monotonic() > end_s:
                return failed
        time.sleep(POLL_S)
    return _first_failure(started)


def _first_failure(started: Sequence[subprocess.Popen[bytes]]) -> int:
    codes: list[int | None] = [process.returncode for process in started]
    return abs(next((code for code in codes if code), 0))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
