"""The output that the README shows is what the command prints."""

import os
import subprocess
import sys

from tests.docs.markdown import Command, commands
from tests.support.paths import REPOSITORY

README = REPOSITORY / "README.md"
ELLIPSIS = "..."


def _shown() -> tuple[Command, list[str]]:
    """The command of the first screen (it starts with "$ "), and the lines below it."""
    command = next(item for item in commands(README) if item.lines[0].startswith("$ "))
    text = README.read_text(encoding="utf-8")
    block = text[text.index(command.lines[-1]) + len(command.lines[-1]) :].partition("```")[0]
    return command, [line.rstrip() for line in block.strip("\n").splitlines()]


def test_the_first_command_prints_what_is_shown() -> None:
    command, shown = _shown()
    words = command.words
    assert words[0] == "penstock"
    assert len(shown) >= 10
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    # An ellipsis stands for lines that are left out; long lines are wrapped.
    parts = [" ".join(part.split()) for part in "\n".join(shown).split(f"\n{ELLIPSIS}\n")]
    printed = " ".join(done.stdout.split())
    missing = [part for part in parts if part not in printed]
    assert missing == [], "README.md shows lines that the command does not print"
