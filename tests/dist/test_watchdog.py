"""A process in which nothing goes on is ended, and says so; one that goes on is not."""

import subprocess
import sys

CODE = """
import time
from penstock.dist.watchdog import Watchdog
dog = Watchdog(0.6, "rank 3")
for number in range(8):
    time.sleep(0.2)
    dog.heard(f"round {number}")
print("went on", flush=True)
"""


def test_bites_when_nothing_goes_on() -> None:
    code = CODE + "time.sleep(30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25, check=False)
    assert done.returncode == 1
    assert done.stdout == "went on\n"
    assert done.stderr == "error: rank 3 has been at round 7 for 0.6 s, and is ended\n"


def test_rests_when_all_is_done() -> None:
    code = CODE + "dog.done(); time.sleep(1.5); print('still there')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=25, check=False)
    assert (done.returncode, done.stdout) == (0, "went on\nstill there\n")
