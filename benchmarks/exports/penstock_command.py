"""Penstock's command line, as a process of its own."""

import json
import subprocess
import sys
from typing import Any


def penstock(*words: str) -> str:
    """Run a command quietly and return its output.

    Raises:
        RuntimeError: It failed.
    """
    code = "import sys; from penstock.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words, "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"penstock {' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


def penstock_json(*words: str) -> dict[str, Any]:
    """Run a command with `--json` and return its data."""
    data: dict[str, Any] = json.loads(penstock(*words, "--json"))
    return data
