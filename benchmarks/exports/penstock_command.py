"""Penstock's command line, as a process of its own."""

import subprocess
import sys


def penstock(*words: str) -> None:
    """Run a command quietly.

    Raises:
        RuntimeError: It failed.
    """
    code = "import sys; from penstock.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"penstock {' '.join(words)}: {done.stderr[-2000:]}")
