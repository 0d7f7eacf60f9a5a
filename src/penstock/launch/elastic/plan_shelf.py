"""Plans for losses, made in advance by a process of low priority and kept in the memory of the host."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from penstock.dist import Launcher, stderr_path
from penstock.errors import RunError
from penstock.io import write_whole
from penstock.units import show_seconds

PLANNING_MODULE = "penstock.launch.elastic.planning_main"
WANTED, RESULT = "wanted.json", "result.json"
POLL_S = 0.02
WAIT_S = 0.1
"""A shorter wait is that for reading a plan that is there."""


class Wanted(msgspec.Struct, frozen=True):
    """The plans to make, in this order: sets of lost devices."""

    losses: tuple[tuple[str, ...], ...]


class Planned(msgspec.Struct, frozen=True):
    """What planning for a loss has found."""

    error: str = ""
    """Why there is no plan; empty if there is one."""
    iteration_s: float = 0.0
    devices: tuple[str, ...] = ()
    """The devices that the plan uses, in the order of the cluster."""
    took_s: float = 0.0


class ShelvedPlan(NamedTuple):
    """A plan that is proved and ready to run."""

    path: Path
    slices: Path
    devices: tuple[str, ...]
    iteration_s: float
    waited_s: float = 0.0
    """Seconds for which the run waited for it."""

    def describe(self) -> str:
        """The plan in words."""
        wait = f", planned in {show_seconds(self.waited_s)}" if self.waited_s > WAIT_S else ", planned in advance"
        return f"{', '.join(self.devices)} ({show_seconds(self.iteration_s)} per iteration predicted{wait})"


def loss_folder(folder: Path, lost: Sequence[str] | frozenset[str]) -> Path:
    """The folder of the plan for a set of lost devices."""
    return folder / ("without " + " ".join(sorted(lost)).replace("/", "%2F"))[:200]


class PlanShelf:
    """The plans for losses. A process makes them, one after the other, in the order in which they are wanted.

    Args:
        launcher: Starts the process, and ends it.
        folder: A directory in memory, for this only.
        arguments: Arguments of the ranks' options, which name the plan.
        original: The plan without a loss.
    """

    def __init__(self, launcher: Launcher, folder: Path, arguments: Sequence[str], original: ShelvedPlan) -> None:
        self._launcher, self._folder, self._arguments = launcher, folder, arguments
        self._plans: dict[frozenset[str], ShelvedPlan] = {frozenset(): original}
        self._process: object | None = None
        self._wanted: tuple[tuple[str, ...], ...] = ()

    def want(self, losses: Sequence[frozenset[str]]) -> None:
        """Make these plans next, the first one first. Plans that are there stay."""
        self._wanted = tuple(tuple(sorted(lost)) for lost in losses if lost and lost not in self._plans)
        write_whole(self._folder / WANTED, msgspec.json.encode(Wanted(self._wanted)))
        if self._wanted and self._process is None:
            command = [sys.executable, "-m", PLANNING_MODULE, str(self._folder), *self._arguments]
            environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
            log = stderr_path(self._folder, "planner")
            self._process = self._launcher.start(command, environment, stdout=log, stderr=log)

    def is_ready(self, lost: frozenset[str]) -> bool:
        """Whether there is a plan for a loss, so that `take` returns it at once."""
        result = loss_folder(self._folder, lost) / RESULT
        if lost in self._plans or not result.exists():
            return lost in self._plans
        return not msgspec.json.decode(result.read_bytes(), type=Planned).error

    def take(self, lost: frozenset[str], on_wait: Callable[[], None] = lambda: None) -> ShelvedPlan:
        """Return the plan for a set of lost devices; make it now if it is not there.

        Args:
            lost: The lost devices.
            on_wait: Called once if the plan must be made.

        Raises:
            RunError: There is no plan, or the planner has failed.
        """
        if lost in self._plans:
            return self._plans[lost]
        began_s, result = time.monotonic(), loss_folder(self._folder, lost) / RESULT
        if not result.exists():
            on_wait()
            self.want([lost])
        while not result.exists():
            if not self._launcher.poll():
                log = stderr_path(self._folder, "planner").read_text(errors="replace").strip().splitlines()[-3:]
                raise RunError(f"the process that plans for losses has ended: {' / '.join(log)}")
            time.sleep(POLL_S)
        planned = msgspec.json.decode(result.read_bytes(), type=Planned)
        if planned.error:
            raise RunError(f"there is no plan without {', '.join(sorted(lost))}: {planned.error}")
        waited_s = time.monotonic() - began_s
        self._plans[lost] = ShelvedPlan(
            result.parent / "plan.json", result.parent / "slices", planned.devices, planned.iteration_s, waited_s
        )
        return self._plans[lost]
