"""The watchdog ends a process without progress, and no other."""

import subprocess
import sys

CODE = """
import time
from penstock.dist.watchdog import Watchdog
dog = Watchdog(0.6, "rank 3")
for number in range(8):
    time.sleep(0.2)
    dog.report_progress(f"round {number}")
print("all rounds", flush=True)
"""


def test_a_process_without_progress_is_ended() -> None:
    code = CODE + "time.sleep(30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25, check=False)
    assert done.returncode == 1
    assert done.stdout == "all rounds\n"
    assert done.stderr == "error: rank 3 made no progress in round 7 for 0.6 s; exiting\n"


def test_a_stopped_watchdog_ends_nothing() -> None:
    code = CODE + "dog.stop(); time.sleep(1.5); print('still running')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25, check=False)
    assert (done.returncode, done.stdout) == (0, "all rounds\nstill running\n")
